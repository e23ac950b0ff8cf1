"""Dockerfile and docker-compose.yml hang together, publish nothing and hold no secret.

No container engine is needed: a check reads the two files and returns what is wrong with them. Each
one must say nothing about the files as they are, and something about each broken copy.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from schedfuzz.cli.main import cli
from schedfuzz.db.connect import open_store
from schedfuzz.service.metrics import registry
from schedfuzz.service.sending import signature

ROOT = Path(__file__).parents[1]
HOME = "/var/lib/schedfuzz"
SECRETS = "/run/secrets/"
STOP_SECONDS = 60  # a hunt has so long to store what it has


@cache
def parse(text: str) -> dict[str, Any]:
    """Return what a YAML text says; nobody may change it."""
    return dict(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


class Files(NamedTuple):
    """The text of the two files."""

    compose: str
    dockerfile: str

    @property
    def plain(self) -> str:
        """The compose file with every variable at its default, as compose would read it."""
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", self.compose)
        return text.replace("$$", "$")

    @property
    def parsed(self) -> dict[str, Any]:
        """The compose file's content."""
        return parse(self.plain)

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """Every service by its name."""
        return dict(self.parsed["services"])

    @property
    def ours(self) -> dict[str, dict[str, Any]]:
        """The services that run schedfuzz."""
        return {name: service for name, service in self.services.items() if "build" in service}

    @property
    def instructions(self) -> list[tuple[str, str]]:
        """The Dockerfile's instructions with their arguments, continued lines joined."""
        lines = [line for line in self.dockerfile.splitlines() if line and not line.startswith("#")]
        text = "\n".join(lines).replace("\\\n", " ")
        return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines()]

    def said(self, instruction: str) -> list[str]:
        """The arguments of every such instruction."""
        return [arguments for name, arguments in self.instructions if name == instruction]


FILES = Files((ROOT / "docker-compose.yml").read_text(), (ROOT / "Dockerfile").read_text())


# -- the checks ----------------------------------------------------------------------------------


def schema(files: Files, folder: Path) -> Iterator[str]:
    """The compose file keeps to the schema of the compose specification."""
    path = folder / "compose.yml"
    path.write_text(files.compose)
    tool = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [tool, "--builtin-schema", "vendor.compose-spec", path], text=True, capture_output=True
    )
    if done.returncode:
        yield done.stdout + done.stderr


def dependencies(files: Files, folder: Path) -> Iterator[str]:
    """What a service waits for exists, and can be healthy if that is waited for."""
    for name, service in files.services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in files.services:
                yield f"{name} depends on {other}, which is none"
            elif how["condition"] == "service_healthy" and (
                "healthcheck" not in files.services[other]
            ):
                yield f"{name} waits for the health of {other}, which has no check"
            elif not set(files.services[other].get("profiles", [])) <= set(
                service.get("profiles", [])
            ):
                yield f"{name} depends on {other} of another profile"


def references(files: Files, folder: Path) -> Iterator[str]:
    """Volumes, networks and secrets are defined exactly when they are used."""
    for kind in ("volumes", "networks", "secrets"):
        defined, used = set(files.parsed.get(kind, {})), set()
        for service in files.services.values():
            for one in service.get(kind, []):
                source = one.partition(":")[0]
                if not source.startswith(("/", ".")):
                    used.add(source)
                elif kind == "volumes":
                    yield f"{one} is a directory of the host"
        yield from (f"{kind}: {name} is not defined" for name in used - defined)
        yield from (f"{kind}: {name} is not used" for name in defined - used)
    for service in files.services.values():
        for key, value in (service.get("environment") or {}).items():
            name = str(value).removeprefix(SECRETS)
            if str(value).startswith(SECRETS) and name not in service.get("secrets", []):
                yield f"{key} reads the secret {name}, which the service is not given"


def published(files: Files, folder: Path) -> Iterator[str]:
    """Only loopback addresses of the host are listened on."""
    for name, service in files.services.items():
        if "network_mode" in service or not service.get("networks"):
            yield f"{name} is not in a network of the file"
        for port in service.get("ports", []):
            host = port.get("host_ip", "") if isinstance(port, dict) else port.rpartition(":")[0]
            address = host.rpartition(":")[0] if not isinstance(port, dict) else host
            try:
                loopback = ip_address(address.strip("[]")).is_loopback
            except ValueError:
                loopback = False
            if not loopback:
                yield f"{name} publishes {port}"


def command_lines(files: Files) -> Iterator[list[str]]:
    """Yield the words after `schedfuzz` of every command in the two files."""
    texts = [files.said("RUN"), files.said("CMD")]
    lines = [line for text in texts for line in text]
    for service in files.ours.values():
        for words in (service.get("command", []), service["healthcheck"]["test"]):
            lines += words
    entry = files.said("ENTRYPOINT") == ['["schedfuzz"]']
    for line in files.said("CMD") if entry else []:
        yield yaml.safe_load(line)
    for line in lines:
        for found in re.findall(r"(?:^|exec |&& )schedfuzz ([^|&;]+)", line):
            yield shlex.split(re.sub(r"\$\([^)]*\)", "192.0.2.1", found))


def commands(files: Files, folder: Path) -> Iterator[str]:
    """Every command of ours is one that the command line takes."""
    found = list(command_lines(files))
    for service in files.ours:
        if not files.ours[service].get("command"):
            yield f"{service} has no command"
    if len(found) < len(files.ours):
        yield f"only {len(found)} commands were found"
    for words in found:
        fault = refused(words)
        if fault:
            yield f"schedfuzz {' '.join(words)}: {fault}"


def refused(words: list[str]) -> str:
    """Return why the real parser does not take the words, or ""; nothing is run."""
    command: click.Command = cli
    rest = list(words)
    try:
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            name = rest.pop(0)
            inner = command.get_command(click.Context(command), name)
            if inner is None:
                return f"no verb {name}"
            command = inner
        command.make_context("schedfuzz", rest)
    except click.exceptions.Exit:
        return ""  # --help
    except click.ClickException as error:
        return error.format_message()
    return ""


def images(files: Files, folder: Path) -> Iterator[str]:
    """Every image that is fetched has a tag that says which one it is."""
    wanted = [text.split()[0] for text in files.said("FROM")]
    wanted += [one["image"] for one in files.services.values() if "build" not in one]
    for image in wanted:
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        if not re.search(r"\d", tag):
            yield f"{image} is not pinned"


def secrecy(files: Files, folder: Path) -> Iterator[str]:
    """No secret stands in either file: they come from files only."""
    private = re.compile(r"PASSWORD|TOKEN|SECRET|PASSFILE")
    given = [
        (key, value)
        for service in files.services.values()
        for key, value in (service.get("environment") or {}).items()
    ]
    for text in files.said("ENV") + files.said("ARG"):
        given += [(word.partition("=")[0], word.partition("=")[2]) for word in shlex.split(text)]
    for key, value in given:
        if private.search(key) and not str(value).startswith(SECRETS):
            yield f"{key} is given in clear"
    for text in files:
        if re.search(r"://[^/\s:@]*:[^/\s@]+@|[?&]password=", text):
            yield "a URL has a password"
        if re.search(r"\b(?<!sha256:)[0-9a-fA-F]{32,}\b", text):
            yield "a long number looks like a secret"
    for name, secret in files.parsed.get("secrets", {}).items():
        if set(secret) != {"file"}:
            yield f"the secret {name} is not from a file"


def devices(files: Files, folder: Path) -> Iterator[str]:
    """The profile `gpu`, and it alone, reserves GPUs; both profiles exist."""
    profiles = {name: one.get("profiles", []) for name, one in files.services.items()}
    for wanted in ("cpu", "gpu"):
        if [wanted] not in profiles.values():
            yield f"there is no profile {wanted}"
    for name, service in files.services.items():
        reserved = service["deploy"]["resources"].get("reservations", {}).get("devices", [])
        kinds = [kind for device in reserved for kind in device["capabilities"]]
        if ("gpu" in kinds) != (profiles[name] == ["gpu"]):
            yield f"{name} reserves {reserved}"


def walls(files: Files, folder: Path) -> Iterator[str]:
    """A service has no rights, writes only where it must, and ends and restarts in good order."""
    for name, service in files.services.items():
        if service.get("cap_drop") != ["ALL"] or "cap_add" in service or "privileged" in service:
            yield f"{name} keeps capabilities"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name} may gain privileges"
        if service.get("read_only") is not True:
            yield f"{name} may write to its image"
        if service.get("user", "").startswith(("0", "root")):
            yield f"{name} runs as root"
        if not service.get("restart"):
            yield f"{name} is not restarted"
        if "healthcheck" not in service:
            yield f"{name} has no health check"
        if seconds(service.get("stop_grace_period", "10s")) < STOP_SECONDS:
            yield f"{name} is killed too early"
    limits = re.findall(r"^ +limits:\n +cpus: (.*)\n +memory: (.*)$", files.compose, re.M)
    if len(limits) != len(files.services) or not all(
        value.startswith("${") for pair in limits for value in pair
    ):
        yield "a service has no limits, or they are no variables"


def seconds(text: str) -> float:
    """Return how long a duration of compose is."""
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([smh])", text))


def image_rules(files: Files, folder: Path) -> Iterator[str]:
    """The image runs as a user of its own, keeps its home in a volume, and takes known files."""
    users = files.said("USER")
    if not users or users[-1].partition(":")[0] in ("0", "root"):
        yield "the image runs as root"
    if files.said("VOLUME") != [HOME] or f"SCHEDFUZZ_HOME={HOME}" not in files.dockerfile:
        yield f"the home is not the volume {HOME}"
    if files.said("ADD"):
        yield "ADD fetches what nothing checks"
    for text in files.said("COPY"):
        for source in text.split()[:-1]:
            if source in (".", "./") or not (ROOT / source).exists():
                yield f"COPY {source}"
    number = users[-1].partition(":")[0] if users else ""
    for name, service in files.ours.items():
        for mount in service.get("tmpfs", []):
            if mount.startswith(HOME) and f"uid={number}," not in mount:
                yield f"{name}: {mount} belongs to somebody else"


def variables(files: Files, folder: Path) -> Iterator[str]:
    """Every variable that a service is given is read by the code, and the guide names it."""
    code = "".join(path.read_text() for path in (ROOT / "schedfuzz").rglob("*.py"))
    guide = (ROOT / "docs" / "operations.md").read_text()
    for service in files.ours.values():
        for key in service["environment"]:
            if key.startswith("SCHEDFUZZ_") and f'"{key}"' not in code:
                yield f"nothing reads {key}"
    for name in re.findall(r"\$\{(\w+)", files.compose):
        if f"`{name}`" not in guide:
            yield f"docs/operations.md does not name {name}"


CHECKS: tuple[Callable[[Files, Path], Iterator[str]], ...] = (
    schema, dependencies, references, published, commands, images, secrecy, devices, walls,
    image_rules, variables,
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_files_are_right(check: Callable[..., Iterator[str]], tmp_path: Path) -> None:
    assert list(check(FILES, tmp_path)) == []


# A check, what stands in one of the files, and what breaks it there.
BROKEN = [
    (schema, "restart: unless-stopped", "restarts: unless-stopped"),
    (schema, "shm_size: 256m", "shm_size: [256m]"),
    (schema, "condition: service_healthy", "condition: service_ready"),
    (dependencies, "    depends_on:\n      postgres:", "    depends_on:\n      database:"),
    (dependencies, "    head:\n      condition", "    gpu:\n      condition"),
    (dependencies, "    healthcheck:\n      test: [CMD, pg", "    x-check:\n      test: [CMD, pg"),
    (references, "  database:\n  home:", "  home:"),
    (references, "networks: [cluster]", "networks: [clusters]"),
    (references, "secrets: [database_passfile, cluster_token]", "secrets: [database_passfile]"),
    (references, "- home:/var", "- ./home:/var"),
    (published, '"127.0.0.1:${', '"${'),
    (published, '"127.0.0.1:${', '"0.0.0.0:${'),
    (published, "networks: [cluster]\n    secrets: [database_password]", "network_mode: host"),
    (commands, "cluster join head:6379", "cluster joins head:6379"),
    (commands, "cluster join head:6379", "cluster join"),
    (commands, "--triage ${SCHEDFUZZ_TRIAGE:-1}", "--triage ${SCHEDFUZZ_TRIAGE:-many}"),
    (commands, "--metrics 0.0.0.0:9464", "--measures 0.0.0.0:9464"),
    (commands, "schedfuzz cluster status |", "schedfuzz cluster statuses |"),
    (commands, 'CMD ["--help"]', 'CMD ["help"]'),
    (images, "postgres:17-bookworm", "postgres:latest"),
    (images, "postgres:17-bookworm", "postgres"),
    (images, "debian:bookworm-20260824-slim", "debian:bookworm-slim"),
    (secrecy, "POSTGRES_PASSWORD_FILE: /run/secrets/database_password", "POSTGRES_PASSWORD: abc"),
    (secrecy, "schedfuzz@postgres:5432", "schedfuzz:abc@postgres:5432"),
    (secrecy, "HOME=/var/lib/schedfuzz \\\n    SCH", "SCHEDFUZZ_WEBHOOK_SECRET=abc \\\n    SCH"),
    (secrecy, "SCHEDFUZZ_NOTIFY_PER_HOUR:", "KEY: 0123456789abcdef0123456789abcdef"),
    (secrecy, "file: ${SCHEDFUZZ_SECRETS:-./secrets}/cluster_token", "environment: TOKEN"),
    (devices, "capabilities: [gpu]", "capabilities: [utility]"),
    (devices, "profiles: [gpu]", "profiles: [cpu]"),
    (walls, "cap_drop: [ALL]", "cap_drop: [NET_RAW]"),
    (walls, "no-new-privileges:true", "no-new-privileges:false"),
    (walls, "read_only: true", "read_only: false"),
    (walls, 'user: "999:999"', 'user: "0:0"'),
    (walls, "restart: unless-stopped", "x-restart: no"),
    (walls, "stop_grace_period: 2m", "stop_grace_period: 30s"),
    (walls, "memory: ${SCHEDFUZZ_MEMORY:-8g}", "memory: 8g"),
    (image_rules, "USER 10001:10001", "USER root"),
    (image_rules, "USER 10001:10001", "USER 10002:10002"),
    (image_rules, "VOLUME /var/lib/schedfuzz", "VOLUME /var/lib"),
    (image_rules, "COPY schedfuzz schedfuzz", "COPY . ."),
    (image_rules, "COPY schedfuzz schedfuzz", "COPY sched schedfuzz"),
    (variables, "SCHEDFUZZ_TOKEN_FILE:", "SCHEDFUZZ_TOKENS_FILE:"),
    (variables, "${SCHEDFUZZ_CPUS:-4}", "${SCHEDFUZZ_CORES:-4}"),
]


@pytest.mark.parametrize(("check", "old", "new"), BROKEN)
def test_a_check_sees_what_is_broken(
    check: Callable[..., Iterator[str]], old: str, new: str, tmp_path: Path
) -> None:
    assert old in FILES.compose + FILES.dockerfile
    broken = Files(*(text.replace(old, new) for text in FILES))
    assert list(check(broken, tmp_path))


def test_every_check_was_seen_to_fail() -> None:
    assert {check for check, _, _ in BROKEN} == set(CHECKS)


# -- the guide -----------------------------------------------------------------------------------

GUIDE = (ROOT / "docs" / "operations.md").read_text()


def test_the_guide_names_every_metric_and_no_other(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'empty.db'}")
    names = set()
    for family in registry(store).collect():
        names.add(family.name + ("_total" if family.type == "counter" else ""))
    store.close()
    told = re.findall(r"^\| (`schedfuzz_.*?) \|", GUIDE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(told))) == names


def test_the_guide_names_only_variables_that_exist() -> None:
    code = "".join(path.read_text() for path in (ROOT / "schedfuzz").rglob("*.py"))
    known = code + FILES.compose
    named = set(re.findall(r"\bSCHEDFUZZ_[A-Z_]+[A-Z]\b", GUIDE))
    assert not {name for name in named if name not in known}


def test_the_guide_checks_signatures_as_we_make_them() -> None:
    [example] = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(example, made)
    now, body = int(time.time()), b'{"event": "finding"}'
    headers = {
        "X-Schedfuzz-Timestamp": str(now),
        "X-Schedfuzz-Signature": signature("key", now, body),
    }
    assert made["genuine"](b"key", headers, body)
    assert not made["genuine"](b"other", headers, body)
    assert not made["genuine"](b"key", headers, body + b" ")
    old = headers | {
        "X-Schedfuzz-Timestamp": str(now - 900),
        "X-Schedfuzz-Signature": signature("key", now - 900, body),
    }
    assert not made["genuine"](b"key", old, body)
