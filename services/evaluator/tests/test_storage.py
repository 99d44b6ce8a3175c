"""Evidence comes back from a verdict as it was, and never makes one too large to travel."""

from __future__ import annotations

import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent.evaluator.v1 import evaluator_pb2 as pb
from webagent_evaluator import storage
from webagent_evaluator.evidence import Evidence, parse
from webagent_evaluator.judge import Exchange, Kind, Question
from webagent_evaluator.locators import Query, Reading
from webagent_evaluator.storage import MAX_STORED_BYTES, restore, store
from webagent_evaluator.verdicts import NoVerdictError

text = st.text(max_size=30)
value = st.recursive(
    st.none() | st.booleans() | st.integers() | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner)
)
evidences = st.builds(
    Evidence,
    st.none() | text,
    st.dictionaries(st.builds(Query, text, text, st.lists(text).map(tuple)), st.builds(Reading, value, text)),
    st.dictionaries(st.builds(Question, st.sampled_from(Kind), text, text), st.builds(Exchange, text, text, text)),
)


@given(evidences)
def test_evidence_comes_back_as_it_was(evidence: Evidence) -> None:
    assert restore(pb.Evidence.FromString(store(evidence).SerializeToString())) == evidence


def test_a_long_page_comes_back_whole() -> None:
    page = Reading("<p>Grüße</p>" * 20_000, "http://site.test/")
    stored = store(Evidence(readings={Query(): page}))
    assert stored.ByteSize() < 4_000
    assert restore(stored).readings == {Query(): page}


def test_what_does_not_fit_loses_its_value_and_keeps_its_place() -> None:
    noise = random.Random(1)
    pages = {Query(f"http://site.test/{n}"): Reading(noise.randbytes(60_000).hex(), "") for n in range(4)}
    stored = store(Evidence(readings=pages))
    assert stored.ByteSize() <= MAX_STORED_BYTES
    assert len(stored.readings) == 4
    assert list(restore(stored).readings) == list(pages)[:1]


LONG = "é" * MAX_STORED_BYTES


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(final_url=LONG),
        Evidence(readings={Query(LONG): Reading(1, "")}),
        Evidence(readings={Query(locator=LONG): Reading(1, "")}),
        Evidence(readings={Query(prep_actions=(LONG,)): Reading(1, "")}),
        Evidence(readings={Query(): Reading(1, LONG)}),
        Evidence(exchanges={Question(Kind.FUZZY, "a", LONG): Exchange("prompt", "correct", "grader")}),
        Evidence(exchanges={Question(Kind.FUZZY, "a", "b"): Exchange("prompt", LONG, "grader")}),
    ],
)
def test_nothing_of_the_evidence_is_too_long_to_travel(evidence: Evidence) -> None:
    evidence.readings[Query(locator="document.title")] = Reading("Shop", "http://site.test/")
    stored = store(evidence)
    assert stored.ByteSize() <= MAX_STORED_BYTES
    assert restore(stored).readings == {Query(locator="document.title"): Reading("Shop", "http://site.test/")}
    assert not restore(stored).exchanges


def test_many_readings_are_no_longer_together_than_one_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MAX_READ_BYTES", 50_000)
    pages = {Query(f"http://site.test/{n}"): Reading("x" * 20_000, "") for n in range(4)}
    stored = store(Evidence(readings=pages))
    assert list(restore(stored).readings) == list(pages)[:2]
    for place in stored.readings[2:]:
        place.value_json_zlib = stored.readings[0].value_json_zlib
    with pytest.raises(NoVerdictError, match="its readings are longer") as fault:
        restore(stored)
    assert fault.value.reason == "EVIDENCE_MALFORMED"


def test_half_a_character_of_a_page_travels_as_a_question_mark() -> None:
    page = Reading(parse(r'["caf\u00e9 \ud83d", {"\udc00": 1}]'), "")
    assert page.value == ["café ?", {"?": 1}]
    assert restore(store(Evidence(readings={Query(): page}))).readings == {Query(): page}


@pytest.mark.parametrize(
    "reading",
    [pb.Reading(value_json="{"), pb.Reading(value_json="[" * 100_000), pb.Reading(value_json_zlib=b"no zlib"),
     pb.Reading(value_json_zlib=zlib.compress(b"0" * 200_000_000))],
)  # fmt: skip
def test_evidence_that_is_none_is_a_fault(reading: pb.Reading) -> None:
    with pytest.raises(NoVerdictError) as fault:
        restore(pb.Evidence(readings=[reading]))
    assert fault.value.reason == "EVIDENCE_MALFORMED"


def test_a_judge_s_reply_of_an_unknown_kind_is_a_fault() -> None:
    with pytest.raises(NoVerdictError):
        restore(pb.Evidence(exchanges=[pb.JudgeExchange(kind="rumour")]))


def test_evidence_is_plain_for_people_where_it_is_short() -> None:
    (stored,) = store(Evidence(readings={Query(locator="document.title"): Reading({"value": "Shop"}, "")})).readings
    assert json.loads(stored.value_json) == {"value": "Shop"}
