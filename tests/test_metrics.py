"""A real scrape: the figures, hostile names, a database that is away, and all that is refused."""

import http.client
import math
import socket
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text, update
from test_db import PAIR, scenario, verdict
from test_db_campaigns import add

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import (
    campaigns,
    figures,
    jobs,
    nodes,
    notices,
    poison,
    samples,
    shared_corpus,
    writes,
)
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding
from schedfuzz.db.service_models import Campaign
from schedfuzz.service import metrics
from schedfuzz.service.metrics import Server

pytest_plugins = ["postgres"]
Series = dict[str, dict[tuple[tuple[str, str], ...], float]]
HOSTILE = 'a"b\\c\nd{x="y"} 1\n# TYPE evil gauge\nevil 1\t\u00e9'


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    server = metrics.serve(store, port=0)
    yield server
    server.stop()


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def scrape(server: Server) -> Series:
    """Return the samples by name, then by labels, as Prometheus reads them."""
    status, body = ask(server, "GET", "/metrics")
    assert status == 200
    series: Series = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in series.setdefault(sample.name, {})
            series[sample.name][labels] = sample.value
    return series


def of(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def sample(store: Store, campaign: int, hunt: int, ago: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    samples.add(store, campaign, hunt, at=at, **dict.fromkeys(samples.FIGURES, 1))


def finding(store: Store, hunt: int, name: str, what: str, before: str = PAIR[0]) -> None:
    after = PAIR[1] if before == PAIR[0] else "x"
    writes.record_verdict(store, hunt, before, after, verdict(name, what), scenario(), 9, 1, 1.0)


def test_a_new_database(store: Store, server: Server) -> None:
    assert scrape(server) == {
        "schedfuzz_up": {(): 1}, "schedfuzz_unfit_targets": {(): 0},
        "schedfuzz_poisons_quarantined": {(): 0},
        "schedfuzz_nodes": {of(state="alive"): 0, of(state="dead"): 0},
        "schedfuzz_notices": {of(state=name): 0 for name in ("waiting", "sent", "failed")},
    }  # fmt: skip


def test_campaigns(store: Store, server: Server) -> None:
    one, two, gone = (add(store, name).id for name in ("one", "two", "gone"))
    for campaign, executions in [(one, 10), (one, 5), (None, 1000), (gone, 70)]:
        hunt = writes.start_hunt(store, *PAIR, seed=1, options={}, campaign_id=campaign)
        writes.update_hunt(store, hunt, executions, executions / 2)
    sample(store, one, 1, 500)
    sample(store, one, 2, 90)
    campaigns.set_state(store, "gone", "removed")
    series = scrape(server)
    names = [of(campaign="one"), of(campaign="two")]
    assert series["schedfuzz_executions_total"] == dict(zip(names, (15, 0), strict=True))
    assert series["schedfuzz_hunting_seconds_total"] == dict(zip(names, (7.5, 0), strict=True))
    ages = series["schedfuzz_sample_age_seconds"]
    assert list(ages) == names[:1] and 89 < ages[names[0]] < 300
    assert two and "schedfuzz_canary_age_seconds" not in series


def test_findings(store: Store, server: Server) -> None:
    hunts = [
        writes.start_hunt(store, *PAIR, seed=1, options={}, campaign_id=number)
        for number in (add(store, "one").id, None, add(store, "gone").id)
    ]
    for number, hunt in enumerate(hunts):
        finding(store, hunt, f"a{number}", "fixed")
        finding(store, hunt, f"b{number}", "fixed")
        finding(store, hunt, f"c{number}", "both")
    writes.record_confirmation(store, 1, 3, 3)
    campaigns.set_state(store, "gone", "removed")
    assert scrape(server)["schedfuzz_findings"] == {
        of(campaign="one", verdict="fixed", status="confirmed"): 1,
        of(campaign="one", verdict="fixed", status="new"): 1,
        of(campaign="one", verdict="both", status="new"): 1,
        of(campaign="", verdict="fixed", status="new"): 2,
        of(campaign="", verdict="both", status="new"): 1,
    }


def test_the_service(store: Store, server: Server) -> None:
    for subject in "ab":
        jobs.post(store, "hunt", subject)
    jobs.claim(store, 1, "me", "here", 60)
    jobs.post(store, "export", "a")
    for name in ("n1", "n2", "n3"):
        nodes.seen(store, name, "10.0.0.1", {})
        nodes.target_state(store, name, "0.28.0", "unfit" if name != "n2" else "ready")
    nodes.gone(store, ["n1", "n2"])  # what was unfit on n3 hurts nobody any more
    shared_corpus.add(store, *PAIR, [scenario(1), scenario(2), scenario(3)])
    shared_corpus.drop(store, *PAIR, sorted(shared_corpus.ids(store, *PAIR))[:1])
    for _ in range(poison.DEATHS):
        poison.blame(store, *PAIR, scenario(1), "died")
    poison.blame(store, *PAIR, scenario(2), "died")
    series = scrape(server)
    assert series["schedfuzz_jobs"] == {
        of(kind="hunt", state="running"): 1, of(kind="hunt", state="waiting"): 1,
        of(kind="export", state="waiting"): 1,
    }  # fmt: skip
    assert series["schedfuzz_nodes"] == {of(state="alive"): 2, of(state="dead"): 1}
    assert series["schedfuzz_unfit_targets"] == {(): 1}
    assert series["schedfuzz_corpus_scenarios"] == {of(before=PAIR[0], after=PAIR[1]): 2}
    assert series["schedfuzz_poisons_quarantined"] == {(): 1}


def test_notices(store: Store, server: Server) -> None:
    number = add(store, "one").id
    hunt = writes.start_hunt(store, *PAIR, seed=1, options={}, campaign_id=number)
    for name in "abc":
        finding(store, hunt, name, "regressed")
    for number in (1, 2, 3):
        writes.record_confirmation(store, number, 3, 3)
    notices.post_missing(store, ["webhook"])
    notices.sent(store, 2)
    told = scrape(server)["schedfuzz_notices"]
    assert told == {of(state="waiting"): 2, of(state="sent"): 1, of(state="failed"): 0}


def test_the_canarys_age(store: Store, server: Server) -> None:
    hunts = {
        name: writes.start_hunt(
            store, f"{before} before", "x", seed=1, options={},
            campaign_id=add(store, name, canary=canary).id,
        )
        # The second of a pair sees nothing that is new.
        for name, before, canary in [
            ("sings", "sings", True), ("sings-too", "sings", True), ("mute", "mute", True),
            ("rests", "rests", True), ("hunts", "hunts", False),
        ]
    }  # fmt: skip
    for name in ("sings", "rests", "hunts"):
        finding(store, hunts[name], name, "fixed", f"{name} before")
        finding(store, hunts[name], f"{name} later", "both", f"{name} before")
    for name in ("sings", "mute"):
        finding(store, hunts[name], f"{name} differently", "changed", f"{name} before")
    campaigns.set_state(store, "rests", "paused")
    ago = {"sings": 4000, "sings later": 1000, "sings differently": 10}
    with store.write() as session:
        for fingerprint, seconds in ago.items():
            seen = datetime.now(UTC) - timedelta(seconds=seconds)
            one = update(Finding).where(Finding.fingerprint == fingerprint)
            session.execute(one.values(last_seen_at=seen))
    ages = figures.canary_age(store)
    assert ages.keys() == {"sings", "sings-too", "mute"} and ages["mute"] is None
    shown = scrape(server)["schedfuzz_canary_age_seconds"]
    for name in ("sings", "sings-too"):
        assert 1000 <= (ages[name] or 0) < 1300 and 1000 <= shown[of(campaign=name)] < 1300
    assert shown[of(campaign="mute")] == math.inf


def test_a_hostile_name_is_a_name(store: Store, server: Server) -> None:
    add(store, "one")
    with store.write() as session:
        session.execute(update(Campaign).values(name=HOSTILE))
    series = scrape(server)
    assert series["schedfuzz_executions_total"] == {of(campaign=HOSTILE): 0}
    assert all(name.startswith("schedfuzz_") for name in series)


def test_cardinality_is_bounded(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "SHOWN", 3)
    for number in range(5):
        campaign = add(store, f"c{number}").id
        hunt = writes.start_hunt(store, *PAIR, seed=1, options={}, campaign_id=campaign)
        finding(store, hunt, f"f{number}", "fixed")
        shared_corpus.add(store, f"b{number}", "x", [scenario(1 + n) for n in range(number)])
    series = scrape(server)
    newest = {of(campaign=f"c{number}") for number in (2, 3, 4)}
    assert series["schedfuzz_executions_total"].keys() == newest
    assert {dict(labels)["campaign"] for labels in series["schedfuzz_findings"]} == {
        "c2", "c3", "c4",
    }  # fmt: skip
    assert list(series["schedfuzz_corpus_scenarios"].values()) == [4, 3, 2]


def test_a_database_that_fails(store: Store, server: Server, tmp_path: Path) -> None:
    with store.write() as session:
        session.execute(text("ALTER TABLE jobs RENAME TO jobs_away"))
    assert scrape(server) == {"schedfuzz_up": {(): 0}}
    assert ask(server, "GET", "/healthz") == (200, b"ok\n")
    with store.write() as session:
        session.execute(text("ALTER TABLE jobs_away RENAME TO jobs"))
    assert scrape(server)["schedfuzz_up"] == {(): 1}


def test_only_two_pages_and_only_to_be_read(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "write", None)  # nothing here may write
    assert ask(server, "GET", "/healthz") == (200, b"ok\n")
    assert ask(server, "GET", "/metrics?x=1")[0] == 200
    for path in ("/", "/metrics/", "/healthz/x", "//", "/../etc/passwd", "/%2e%2e/x"):
        assert ask(server, "GET", path)[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "ODD"):
        for path in ("/metrics", "/"):
            body = b"x" if method in ("POST", "PUT") else None
            assert ask(server, method, path, body)[0] == 405
    assert scrape(server)["schedfuzz_up"] == {(): 1}


def test_openmetrics_if_asked_for(server: Server) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers=accept)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert answer.read().endswith(b"# EOF\n")


def test_scrapes_at_once_and_a_client_that_says_nothing(store: Store, server: Server) -> None:
    add(store, "one")
    silent = socket.create_connection(("127.0.0.1", server.port))
    ups: list[dict[tuple[tuple[str, str], ...], float]] = []
    threads = [
        threading.Thread(target=lambda: ups.append(scrape(server)["schedfuzz_up"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ups == [{(): 1}] * 8
    silent.close()


def test_a_server_stops_and_its_address_is_free_again(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    server = metrics.serve(store, port=0)
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(InputError, match=f"127.0.0.1:{server.port}: Address already in use; "):
        metrics.serve(store, port=server.port)
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "GET", "/healthz")
    metrics.serve(store, port=server.port).stop()
    for host, port in [("no such host", 1), ("127.0.0.1", 70000), ("203.0.113.1", 9464)]:
        with pytest.raises(InputError, match=f"{host}:{port}: .+; choose another"):
            metrics.serve(store, host, port)
    store.close()
