"""The dashboard in a real browser: every page, filters, a decision, the drawings' marks, no script.

Needs Debian's Chromium; skipped where there is none.
"""

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import waitress
from fabricated import CONTRACT, FIRST, OTHER, SECOND, SMALL, trace
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect, sync_playwright

from schedfuzz.corpus.trace import Verdict, Violation
from schedfuzz.db import campaigns, decisions, queries, samples, traces, verifications, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.web.app import create

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
TOKEN = "a-token-that-nobody-guesses"
ATTACK = '"><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}<svg onload=alert(3)>'
BAD = trace(FIRST, OTHER, violations=(CONTRACT,))
GOOD = trace(FIRST, SECOND)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store with a campaign, plain findings and one that is hostile in every text."""
    made = open_store(f"sqlite:///{tmp_path_factory.mktemp('browser') / 'web.db'}")
    campaign = campaigns.add(
        made, name="night", before=ATTACK, after="0.29.0", runner="simulated", hunts=1, priority=0,
        budget_executions=None, budget_seconds=None, daily_cap=9, canary=True, options={},
    )  # fmt: skip
    hunt = writes.start_hunt(made, "0.28.0", "0.29.0", 1, {}, campaign_id=campaign.id, node="n")
    for minutes in (50, 20, 1):
        figures = dict.fromkeys(sorted(samples.FIGURES), 100 - minutes)
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        samples.add(made, campaign.id, hunt, at=at, **figures)
    for name, kind, title in (
        ("regressed", "contract", "plain regression"), ("fixed", "contract", "plain mending"),
        ("changed", "divergence", "plain change"), ("regressed", "crash", ATTACK),
    ):  # fmt: skip
        said = ATTACK if title == ATTACK else "token-budget"
        verdict = Verdict(name, kind, said, title, title, said)  # type: ignore[arg-type]
        number, _ = writes.record_verdict(made, hunt, "0.28.0", "0.29.0", verdict, SMALL, 2, 1, 1.0)
        bad = replace(BAD, violations=(Violation("crash", said, said, 1, 0, "running"),))
        sides = (GOOD, bad if title == ATTACK else BAD)
        traces.save(made, number, SMALL, *(sides if name != "fixed" else sides[::-1]))
        verifications.save(made, number, ATTACK, "breaks", 3, 3)
        verifications.save(made, number, "0.30.0", "keeps", 3, 3)
        decisions.remark(made, number, ATTACK, ATTACK)
    writes.start_hunt(made, ATTACK, ATTACK, 1, {})
    return made


@pytest.fixture(scope="module")
def server(store: Store) -> Iterator[str]:
    """Return the URL of the dashboard over it."""
    running = waitress.create_server(create(store, TOKEN), host="127.0.0.1", port=0)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.effective_port}"
    running.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=["wide light", "phone dark"])
def page(browser: Browser, server: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Return a page that fails its test for whatever it complains of."""
    phone = request.param == "phone dark"
    size = {"width": 390, "height": 800} if phone else {"width": 1280, "height": 900}
    context = browser.new_context(
        base_url=server,
        viewport=size,
        color_scheme="dark" if phone else "light",  # type: ignore[arg-type]
    )
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(said.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    yield opened
    context.close()
    assert complaints == []


def fits(page: Page) -> bool:
    """Return whether nothing sticks out of the window: what is wide scrolls by itself."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


PAGES = (
    "/", "/?hours=168", "/findings", "/findings?all=1", "/sign-in", "/findings/1", "/findings/2",
    "/findings/3", "/findings/4",
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_every_page_stands_and_an_attack_stays_text(page: Page, path: str) -> None:
    answer = page.goto(path)
    assert answer is not None and answer.status == 200
    assert page.locator("script, img, svg[onload]").count() == 0
    assert page.locator("main h1").count() == 1
    assert "49" not in page.locator("h1").inner_text()
    assert fits(page)


def test_the_attack_is_there_to_be_read(page: Page) -> None:
    page.goto("/findings/4")
    assert ATTACK in page.locator("h1").inner_text()
    assert page.locator("td", has_text=ATTACK).count() > 0
    assert ATTACK in page.locator(".strip").inner_text()
    page.goto("/")
    assert ATTACK in page.locator("h2").first.inner_text()


def test_filters_are_typed_and_kept(page: Page) -> None:
    page.goto("/findings")
    assert page.locator("tbody tr").count() == 4
    page.get_by_label("text").fill("plain")
    page.get_by_label("verdict").select_option("fixed")
    page.get_by_role("button", name="filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.get_by_label("text").input_value() == "plain"
    page.locator("tbody a").first.click()
    expect(page.locator("h1")).to_have_text("Finding 2: plain mending")
    page.goto("/findings")
    page.get_by_label("text").fill(ATTACK)
    page.get_by_label("before").fill("0.28.0")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.get_by_label("text").input_value() == ATTACK


def test_a_timeline_marks_where_the_sides_part_and_where_a_rule_breaks(page: Page) -> None:
    page.goto("/findings/1")
    before, after = page.locator("svg.schedule").all()
    counts = [
        (side.locator(".mark.parting").count(), side.locator(".mark.broken").count())
        for side in (before, after)
    ]
    assert counts == [(1, 0), (1, 1)]
    parting = after.locator(".mark.parting").bounding_box()
    cell = after.locator("[data-step='1'] .cell").bounding_box()
    assert parting and cell and parting["x"] <= cell["x"] <= parting["x"] + parting["width"]
    said = after.locator("[data-step='1'] .cell title").text_content()
    assert said == (
        "step 1, request 0 (running): 5 computed, 1 scheduled, 0 of them drafts, 1 sampled, "
        "1 blocks"
    )
    assert page.locator(".strip li.keeps").get_attribute("title") == "keeps in 3 of 3 runs"


def test_a_decision_is_made_by_keyboard_and_taken_back(page: Page, store: Store) -> None:
    page.goto("/findings/3")
    assert page.get_by_role("button", name="invalid").count() == 0
    page.get_by_role("link", name="sign in").first.click()
    page.get_by_label("name").fill(ATTACK)
    page.get_by_label("token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url("**/findings")
    page.goto("/findings/3")
    form = page.locator("form", has=page.get_by_role("button", name="invalid"))
    form.get_by_label("why").fill(ATTACK)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    reopen = page.get_by_role("button", name="reopen")
    expect(reopen).to_be_visible()
    assert queries.get_finding(store, 3).status == "invalid"
    entry = decisions.history(store, 3)[-1]
    assert (entry.note, entry.actor) == (ATTACK, ATTACK[:80])
    reopen.click()
    expect(reopen).to_have_count(0)
    assert queries.get_finding(store, 3).status == "new"


def test_a_page_says_what_is_wrong(browser: Browser, server: str) -> None:
    opened = browser.new_page(base_url=server)
    answer = opened.goto("/findings/99")
    assert answer is not None and answer.status == 404
    assert "finding 99: not in" in opened.locator("main").inner_text()
    opened.close()


def test_links_are_reached_by_tab(page: Page) -> None:
    page.goto("/findings")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "to the content"
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "schedfuzz"


def test_screenshots_can_be_taken(page: Page, tmp_path: Path) -> None:
    for path in ("/", "/findings", "/findings/1"):
        page.goto(path)
        assert len(page.screenshot(full_page=True)) > 5_000
