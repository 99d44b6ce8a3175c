"""Strict comparison finds what stands by itself, in words and in numbers, and what it finds the dialect finds too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webagent_evaluator.addresses import matches
from webagent_evaluator.answers import includes, satisfies, whole_number
from webagent_evaluator.dialects import Dialect, Manner
from webagent_evaluator.judge import Kind, Question, agrees
from webagent_evaluator.locators import call_of
from webagent_evaluator.verdicts import NoVerdictError

STRICT, LAX = Manner(Dialect.UPSTREAM, strict=True), Manner(Dialect.UPSTREAM)


def found(item: str, text: str, manner: Manner) -> bool:
    return includes(item, text, manner, lone=False, either=False)


@pytest.mark.parametrize(
    ("item", "text"),
    [("170", "170"), ("170", "It was 170."), ("170", "(170)"), ("170", "$170"), ("170", "#000170, 170"),
     ("85", "1.46-85"), ("85", "1.46,85"), ("1.46", "1.46,85"), ("47.41", "47.410"), ("Lo", "Lo,Chen"),
     ("@primer", "<b>@primer</b>"), ("a b", "a b"), ("2", "1,2,3"), ("", "anything")],
)  # fmt: skip
def test_what_stands_by_itself_is_found(item: str, text: str) -> None:
    assert found(item, text, STRICT)


@pytest.mark.parametrize(
    ("item", "text"),
    [("170", "1700"), ("170", "0170"), ("170", "1,170"), ("170", "170,000"), ("170", "170.5"), ("170", "3.170"),
     ("Lo", "Lopez"), ("Lo", "hello"), ("16x24", "116x240"), ("47.41", "1,047.41"), ("id", "user_id")],
)  # fmt: skip
def test_what_is_part_of_something_else_is_not_found(item: str, text: str) -> None:
    assert not found(item, text, STRICT)
    assert found(item, text, LAX)


@given(st.text(max_size=6), st.text(max_size=40))
def test_strict_finds_nothing_that_the_dialect_does_not(item: str, text: str) -> None:
    assert found(item, text, LAX) or not found(item, text, STRICT)


@given(st.text("ab/?=&#.1", max_size=12), st.text("ab/?=&#.1", max_size=12))
def test_a_strict_address_is_below_itself(path: str, more: str) -> None:
    url = f"http://site.test/{path}"
    assert matches(url, "GOLD in PRED", url, STRICT)
    assert not matches(f"http://site.test/x{path}", "GOLD in PRED", f"http://other.test/{more}", STRICT)


@pytest.mark.parametrize(
    ("reference", "final", "strictly"),
    [
        ("http://site.test/a?x=1&y=2", "http://site.test/a?y=2&x=1", True),
        ("http://site.test/a?x=1&x=2", "http://site.test/a?x=2", False),
        ("http://site.test/a?x=", "http://site.test/a", False),
        ("http://site.test/a#b", "http://site.test/a", False),
        ("http://Site.test:80/a/", "http://site.test/a", True),
        ("https://site.test:443/a", "https://site.test/a", True),
        ("http://site.test:443/a", "http://site.test/a", False),
        ("http://[::80]/a", "http://[::80]/a", True),
    ],
)
def test_an_exact_address_is_one_however_its_query_and_host_are_written(
    reference: str, final: str, strictly: bool
) -> None:
    assert matches(reference, "EXACT", final, Manner(Dialect.VAB_LITE, strict=True)) is strictly
    assert matches(reference, "EXACT", final, Manner(Dialect.VAB_LITE)) is (reference == final)
    if strictly:
        assert matches(reference, "GOLD in PRED", final, STRICT)


def test_numbers_are_compared_by_inequalities_and_nothing_else() -> None:
    assert whole_number(" 1,234 ") == 1234
    assert whole_number("12.5") is None
    assert satisfies(5, ">= 5 |OR| == 2")
    assert not satisfies(5, "< 4")
    with pytest.raises(NoVerdictError):
        satisfies(5, "__import__('os')")


@given(st.text(max_size=40))
def test_a_call_is_a_name_with_plain_strings_or_a_fault(source: str) -> None:
    try:
        name, _ = call_of(source)
    except NoVerdictError:
        return
    assert name.isidentifier() or name.replace("_", "0").isalnum()


@pytest.mark.parametrize("condition", ["== 5", ">= 5", "<= 5", "< 5", "> 5"])
def test_numbers_of_any_size_are_compared(condition: str) -> None:
    assert satisfies(10**400, condition) == (">" in condition)


@pytest.mark.parametrize(
    ("reply", "agreed"),
    [("Correct.", True), ("incorrect", False), ("<think>incorrect? no</think>correct", True),
     ("it may be correct</think>\nincorrect", False)],
)  # fmt: skip
def test_a_judge_s_word_counts_once_its_thoughts_are_over(reply: str, agreed: bool) -> None:
    assert agrees(Question(Kind.FUZZY, "a", "b"), reply) is agreed


def test_a_judge_that_was_cut_off_amid_its_thoughts_said_nothing() -> None:
    with pytest.raises(NoVerdictError) as fault:
        agrees(Question(Kind.FUZZY, "a", "b"), "<think>It could be incorrect, but")
    assert fault.value.reason == "JUDGE_REPLY_MALFORMED"
