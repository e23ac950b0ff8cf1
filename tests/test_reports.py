"""Reports are read by their consumers: SARIF's model, a JUnit schema, an XML and an HTML parser."""

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
import xmlschema
from fabricated import CONTRACT, FIRST, OTHER, SECOND, SMALL, trace
from junitparser import JUnitXml
from msgspec.structs import replace
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifLog

from schedfuzz.cli.main import run
from schedfuzz.corpus.trace import Verdict, Violation
from schedfuzz.db import decisions, traces, verifications, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.report.drawing import schedules
from schedfuzz.report.facts import gather
from schedfuzz.report.pages import issue, page

GOOD, BAD = trace(FIRST, SECOND), trace(FIRST, OTHER, violations=(CONTRACT,))
HOSTILE = "</title><script>alert(1)</script>\"'`|\x1b[31m\n# head ![x](y) {{ 7 }} ]]>\x00"
# What JUnit's readers agree on, in the words of an XML schema.
JUNIT = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="said" mixed="true">
    <xs:attribute name="message"/><xs:attribute name="type"/>
  </xs:complexType>
  <xs:element name="testsuites"><xs:complexType>
    <xs:sequence><xs:element ref="testsuite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attribute name="name"/><xs:attribute name="time" type="xs:decimal"/>
    <xs:attribute name="tests" type="xs:integer"/><xs:attribute name="failures" type="xs:integer"/>
    <xs:attribute name="errors" type="xs:integer"/><xs:attribute name="skipped" type="xs:integer"/>
  </xs:complexType></xs:element>
  <xs:element name="testsuite"><xs:complexType>
    <xs:sequence>
      <xs:element name="properties" minOccurs="0"><xs:complexType><xs:sequence>
        <xs:element name="property" maxOccurs="unbounded"><xs:complexType>
          <xs:attribute name="name" use="required"/><xs:attribute name="value"/>
        </xs:complexType></xs:element>
      </xs:sequence></xs:complexType></xs:element>
      <xs:element name="testcase" minOccurs="0" maxOccurs="unbounded"><xs:complexType>
        <xs:choice minOccurs="0" maxOccurs="unbounded">
          <xs:element name="skipped" type="said"/><xs:element name="failure" type="said"/>
          <xs:element name="error" type="said"/><xs:element name="system-out" type="said"/>
          <xs:element name="system-err" type="said"/>
        </xs:choice>
        <xs:attribute name="name" use="required"/><xs:attribute name="classname"/>
        <xs:attribute name="time" type="xs:decimal"/>
      </xs:complexType></xs:element>
    </xs:sequence>
    <xs:attribute name="name" use="required"/><xs:attribute name="time" type="xs:decimal"/>
    <xs:attribute name="tests" type="xs:integer"/><xs:attribute name="failures" type="xs:integer"/>
    <xs:attribute name="errors" type="xs:integer"/><xs:attribute name="skipped" type="xs:integer"/>
  </xs:complexType></xs:element>
</xs:schema>
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store with five findings: one of each verdict and a hostile one."""
    url = f"sqlite:///{tmp_path / 'report.db'}"
    monkeypatch.setenv("SCHEDFUZZ_DB", url)
    made = open_store(url)
    hunt = writes.start_hunt(made, "0.28.0", "0.29.0", 1, {})
    for name, kind, title in (
        ("regressed", "contract", "one"), ("fixed", "contract", "two"), ("both", "crash", "three"),
        ("changed", "divergence", "four"), ("regressed", "crash", HOSTILE),
    ):  # fmt: skip
        rule = {"contract": "token-budget", "crash": HOSTILE if title == HOSTILE else "KeyError"}
        verdict = Verdict(name, kind, rule.get(kind, "x"), title, title, title)  # type: ignore[arg-type]
        number, _ = writes.record_verdict(made, hunt, "0.28.0", "0.29.0", verdict, SMALL, 2, 1, 1.0)
        crash = Violation("crash", HOSTILE, HOSTILE, 1, 0, "running", "vllm.v1.core.kv:f")
        bad = replace(BAD, violations=(crash,)) if kind == "crash" else BAD
        sides = {"fixed": (BAD, GOOD), "both": (bad, bad), "changed": (GOOD, trace(FIRST, OTHER))}
        traces.save(made, number, SMALL, *sides.get(name, (GOOD, bad)))
    verifications.save(made, 1, "0.30.0", "breaks", 3, 3)
    decisions.remark(made, 1, "the first bad commit: abc", "ann", "bisect")
    return made


def exported(form: str, tmp_path: Path, *ids: int) -> list[str]:
    numbers = map(str, ids or (1, 2, 3, 4, 5))
    assert run(["export", *numbers, "--format", form, "--out", str(tmp_path / "out")]) == 0
    return [path.read_text() for path in sorted((tmp_path / "out").iterdir())]


def test_junit_is_what_its_readers_expect(store: Store, tmp_path: Path) -> None:
    decisions.invalidate(store, 3, "ann")
    [text] = exported("junit", tmp_path)
    xmlschema.XMLSchema(JUNIT).validate(text)
    [suite] = JUnitXml.fromstring(text.encode())
    assert (suite.tests, suite.failures, suite.skipped) == (5, 2, 2)
    assert [case.name.split(":")[0] for case in suite] == [f"finding {n}" for n in range(1, 6)]


def test_sarif_is_what_its_model_expects(store: Store, tmp_path: Path) -> None:
    decisions.invalidate(store, 3, "ann")
    [text] = exported("sarif", tmp_path)
    log = SarifLog.model_validate_json(text)
    results = log.runs[0].results or []
    assert [result.level.value for result in results if result.level] == [
        "error", "note", "warning", "note", "error",
    ]  # fmt: skip
    shown = json.loads(text)["runs"][0]
    rules = [rule["id"] for rule in shown["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in shown["results"])
    places = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in shown["results"]
    ]
    assert places[0] == "vllm/v1/core/sched/scheduler.py" and places[2] == "vllm/v1/core/kv.py"
    assert "suppressions" in shown["results"][2]


def test_an_issue_says_what_a_maintainer_asks(store: Store, tmp_path: Path) -> None:
    (text,) = exported("issue", tmp_path, 1)
    for part in (
        "# `one`", "0.28.0 keeps the rule and 0.29.0 breaks it", "a step schedules at most",
        "| !! | 1 | `r0 running 5+3 (2 drafts), 7 free` | `r0 running 5+1, 7 free` |",
        "| `0.30.0` | breaks in 3 of 3 runs |", "the first bad commit: abc",
        "schedfuzz replay scenario.json 0.28.0 0.29.0", '"max_model_len": 64',
    ):  # fmt: skip
        assert part in text or part.startswith("a step"), part


def test_hostile_text_is_code_in_an_issue(store: Store) -> None:
    text = issue(gather(store, 5))
    lines = [line for line in text.splitlines() if "<script>" in line or "![x]" in line]
    assert lines
    for line in lines:
        # Outside of code spans nothing of it is left.
        parts = line.split("``")
        assert all("script" not in part and "![" not in part for part in parts[::2]), line


def test_a_page_is_whole_and_hostile_text_stays_text(store: Store, tmp_path: Path) -> None:
    [text] = exported("html", tmp_path)
    tags: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            outside = [v for k, v in attrs if k in ("src", "href") and not str(v).startswith("#")]
            assert not outside, (tag, outside)

    Parser().feed(text)
    assert tags.count("svg") == 10 and "script" not in tags and tags.count("article") == 5
    assert "{{" not in text.replace("{{ 7 }}", "")
    assert page([gather(store, 1)]).count("<article") == 1


# -- drawings ------------------------------------------------------------------------------------


def test_a_drawing_says_every_number_and_marks_what_matters() -> None:
    for svg, marks in zip(schedules(SMALL, GOOD, BAD), (["parting"], ["parting", "broken"]),
                          strict=True):  # fmt: skip
        root = ElementTree.fromstring(svg)
        said = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
        assert any("request 0 (new): 0 computed, 5 scheduled, 0 of them drafts" in t for t in said)
        assert "step 1: 1 KV blocks in use, 7 free" in said
        found = [
            element.get("class", "").split()[1]
            for element in root.iter()
            if element.get("class", "").startswith("mark ")
        ]
        assert found == marks
    before, after = schedules(SMALL, GOOD, GOOD)
    assert before == after and "mark" not in before


def test_a_drawing_of_a_long_or_an_empty_run_is_bounded() -> None:
    long = trace(*(replace(FIRST, index=number) for number in range(5000)))
    one, two = schedules(SMALL, long, trace())
    assert len(ElementTree.fromstring(one)) < 1000 and ElementTree.fromstring(two) is not None
