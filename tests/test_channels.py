"""The settings of channels: what is understood, and what is refused without telling secrets."""

from pathlib import Path

import pytest

from schedfuzz.corpus.errors import InputError
from schedfuzz.service.channels import Channels


def test_channels_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-file\n")
    made = Channels.from_environment
    assert made({}) == Channels(None, None, (), 20) and made({}).names == ()
    url = {"SCHEDFUZZ_WEBHOOK_URL": "https://h.example/x?y=1#z"}
    assert made(url).webhook_url == "https://h.example/x?y=1" and made(url).names == ("webhook",)
    assert made({"SCHEDFUZZ_WEBHOOK_SECRET": "s"}).secret == "s"
    assert made({"SCHEDFUZZ_WEBHOOK_SECRET_FILE": str(file)}).secret == "from-file"
    for text in ("true 'a b' c", '["true", "a b", "c"]'):
        both = made(url | {"SCHEDFUZZ_NOTIFY_COMMAND": text, "SCHEDFUZZ_NOTIFY_PER_HOUR": " 3 "})
        assert (both.command, both.per_hour) == (("true", "a b", "c"), 3)
        assert both.names == ("webhook", "command")
    assert (
        made(dict.fromkeys(["SCHEDFUZZ_WEBHOOK_URL", "SCHEDFUZZ_NOTIFY_COMMAND"], "")).names == ()
    )


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("WEBHOOK_URL", "ftp://h/x", "'ftp' is neither http nor https"),
        ("WEBHOOK_URL", "file:///etc/passwd", "'file' is neither"),
        ("WEBHOOK_URL", "h.example/x", "'' is neither"),
        ("WEBHOOK_URL", "http:///x", "no host"),
        ("WEBHOOK_URL", "http://h:99999/x", "malformed"),
        ("WEBHOOK_URL", "http://[::1/x", "malformed"),
        ("WEBHOOK_URL", "http://h/a\r\nX: y", "blanks"),
        ("WEBHOOK_URL", "https://me:hush@h.example/x", "before 'h.example'"),
        ("WEBHOOK_SECRET_FILE", "/nowhere/x", "'/nowhere/x': No such file"),
        ("WEBHOOK_SECRET_FILE", "/dev/null", "'/dev/null': is empty"),
        ("NOTIFY_COMMAND", "a 'b", "No closing quotation"),
        ("NOTIFY_COMMAND", "[1]", "'[1]': is no list of words"),
        ("NOTIFY_COMMAND", "[]", "is no list of words"),
        ("NOTIFY_COMMAND", '["true", ', "Expecting value"),
        ("NOTIFY_COMMAND", '["true", "\\u0000"]', "NUL"),
        ("NOTIFY_COMMAND", "no-such-program-here x", "'no-such-program-here': no such program"),
        *(("NOTIFY_PER_HOUR", text, repr(text)) for text in ("0", "-1", "x", "1_0", "9" * 5000)),
    ],
)
def test_a_wrong_setting_is_one_line(name: str, value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Channels.from_environment({f"SCHEDFUZZ_{name}": value})
    text = str(caught.value)
    assert text.startswith(f"SCHEDFUZZ_{name}") and said in text and len(text.splitlines()) == 1
    assert "; " in text and "hush" not in text


def test_two_secrets_are_one_too_many() -> None:
    both = {"SCHEDFUZZ_WEBHOOK_SECRET": "hush", "SCHEDFUZZ_WEBHOOK_SECRET_FILE": "/x"}
    with pytest.raises(InputError, match="both set; unset one") as caught:
        Channels.from_environment(both)
    assert "hush" not in str(caught.value)
