"""The session without a screen: versions, what is remembered, what moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hapdsl.explore.inquiries import ADVISER, CHECKER, Inquiries
from hapdsl.explore.moving import moved
from hapdsl.explore.session import Plan, Session, gap_in_words
from hapdsl.explore.state import PROVEN, TEXT, WRONG, Analysis, Document, Finding, LineCost, Priced, worst

LINES = st.lists(st.sampled_from("abcd"), max_size=8)


@given(LINES, LINES)
def test_lines_that_move_keep_their_text_and_order(before: list[str], after: list[str]) -> None:
    move = moved("\n".join(before), "\n".join(after))
    targets = [move(k + 1) for k in range(len(before))]
    kept = [(k, t) for k, t in enumerate(targets) if t is not None]
    assert all(before[k] == after[t - 1] for k, t in kept)
    assert [t for _, t in kept] == sorted({t for _, t in kept})


@given(LINES, st.integers(0, 8), LINES)
def test_lines_outside_an_insertion_are_all_kept(text: list[str], at: int, new: list[str]) -> None:
    after = [*text[:at], *new, *text[at:]]
    move = moved("\n".join(text), "\n".join(after))
    if text:
        assert all(move(k + 1) is not None for k in range(len(text)))


def priced(name: str = "p", seconds: float | None = 1.0, state: str = PROVEN) -> Priced:
    lines = {} if seconds is None else {2: LineCost(seconds)}
    return Priced(name, "m", None, 1, 3, state, sync_s=seconds, overlap_s=seconds, lines=lines)


def test_an_answer_to_another_version_is_dropped() -> None:
    session = Session()
    document = session.open(Document("d", "a\nb\nc", path=Path("d.hap"), saved="a\nb\nc"))
    assert session.accept("d", Analysis(1, (), (priced(),)))
    assert document.edit("a\nb!\nc") and document.dirty and document.checking
    assert not session.accept("d", Analysis(1, (), (priced(seconds=9.0),)))
    (row,) = session.rows()
    assert row.seconds == 1.0 and row.old and row.state == "unknown"
    assert session.accept("d", Analysis(2, (), (priced(seconds=2.0),)))
    (row,) = session.rows()
    assert row.seconds == 2.0 and not row.old and row.state == PROVEN
    assert not session.accept("nowhere", Analysis(1))


def test_the_last_good_cost_stays_beside_an_error_and_moves_with_its_line() -> None:
    document = Document("d", "a\nb\nc")
    document.accept(Analysis(1, (), (priced(),)))
    document.edit("new\na\nb\nc")
    assert document.costs() == ({3: LineCost(1.0)}, {3})
    error = Finding("HAP101", "error", "no", line=1)
    document.accept(Analysis(2, (error,), ()))
    assert document.costs() == ({3: LineCost(1.0)}, {3})
    document.edit("new\na\nchanged\nc")
    assert document.costs() == ({}, set())
    document.edit("a\nb\nc")
    document.accept(Analysis(4, (error,), (priced(seconds=None, state=WRONG),)))
    assert document.costs() == ({2: LineCost(1.0)}, {2})
    document.accept(Analysis(4, (), (priced("other"),)))  # renamed: nothing of the old name is left
    assert set(document.good) == {"other"}


def test_plans_follow_the_programs_of_the_text() -> None:
    session = Session()
    session.open(Document("d", "x"))
    session.accept("d", Analysis(1, (), (priced("a"), priced("b"))))
    assert session.current == ("d", "a") and [p.program for p in session.plans.values()] == ["a", "b"]
    session.documents["d"].edit("y")
    session.accept("d", Analysis(2, (), (priced("c"), priced("b"))))
    assert session.current == ("d", "c") and [r.plan.program for r in session.rows()] == ["c", "b"]
    session.documents["d"].edit("broken")
    session.accept("d", Analysis(3, (Finding("HAP101", "error", "no"),), ()))
    assert [r.state for r in session.rows()] == ["unknown", "unknown"]  # what doesn't parse is not gone
    session.accept("d", Analysis(3, (Finding("HAP101", "error", "no", line=1),), ()))
    assert [r.state for r in session.rows()] == [WRONG, WRONG]
    session.documents["d"].edit("")
    session.accept("d", Analysis(4))
    assert session.rows() == [] and session.current is None


def test_what_counts_as_unsaved() -> None:
    session = Session()
    file = session.open(Document("f", "a", path=Path("f.hap"), saved="a"))
    found = session.open(Document("p", "a", suggested=Path("p.hap")))
    assert session.unsaved == []  # a plan that nobody touched can be found again
    found.edit("b", by_hand=False)
    assert session.unsaved == []
    found.edit("c")
    file.edit("c")
    assert session.unsaved == [file, found]
    file.edit("a")
    found.saved_as(Path("q.hap"), "c")
    assert session.unsaved == [] and found.title == "q.hap"


def test_the_worst_of_a_line() -> None:
    warning = Finding("HAP317", "warning", "w", line=4, column=1, end_line=4, end_column=9)
    error = Finding("HAP501", "error", "e", line=4, column=3, end_line=4, end_column=9)
    elsewhere = Finding("HAP501", "error", "e", line=4, here=False)
    block = Finding("HAP570", "error", "b", line=2, column=1, end_line=6, end_column=2)
    assert worst([warning, error, elsewhere], 4) is error
    assert worst([elsewhere], 4) is None
    assert worst([block], 5) is block and worst([block], 7) is None
    assert worst([block, warning], 4) is warning


def test_gaps_in_words() -> None:
    assert [gap_in_words(g) for g in (None, 0.0, 0.00607, 0.25)] == ["", "gap 0 %", "gap 0.61 %", "gap 25 %"]


def test_rows_group_by_where_plans_come_from() -> None:
    session = Session()
    for key, origin in (("b", "baseline"), ("s", "plan"), ("f", "file")):
        session.open(Document(key, key))
        session.put(Plan(key, key, origin, key))
    assert [r.plan.origin for r in session.rows()] == ["file", "plan", "baseline"]


def test_a_text_without_a_program_stays_on_the_screen() -> None:
    session = Session()
    session.open(Document("main", "x"))
    plan = session.open(Document("plan", "x"))
    for key in ("main", "plan"):
        session.accept(key, Analysis(1, (), (priced("a"),)))
    session.current = ("plan", "a")
    plan.edit("nothing")
    session.accept("plan", Analysis(2))
    assert session.document is plan and session.plan is not None and session.plan.program == ""
    assert [(r.plan.document, r.state) for r in session.listed()] == [("main", PROVEN), ("plan", TEXT)]
    plan.edit("x")
    session.accept("plan", Analysis(3, (), (priced("b"),)))
    assert session.current == ("plan", "b")


def test_texts_at_the_same_path_are_asked_about_apart() -> None:
    sent: list[dict[str, Any]] = []
    session = Session()
    for key in ("one", "two"):
        session.open(Document(key, f"text {key}", suggested=Path("plan.hap")))
    inquiries = Inquiries(session, lambda helper, request: sent.append(request))
    for key in ("one", "two", "one"):
        inquiries.ask(key, "line", [(session.documents[key], "p")], helper=ADVISER)
    assert [r.get("text") for r in sent] == ["text one", "text two", None]
    assert sent[0]["document"] == sent[2]["document"] != sent[1]["document"]


def test_whoever_still_waits_hears_of_a_helper_s_end() -> None:
    session = Session()
    document = session.open(Document("d", "x"))
    inquiries = Inquiries(session, lambda helper, request: None)
    for topic, subject in (("line", 1), ("line", 2), ("overview", 3)):
        inquiries.ask(topic, topic, [(document, "p")], subject)
    assert [q.subject for q in inquiries.flying.values()] == [1, 3] and inquiries.waiting["line"].subject == 2
    assert sorted(q.subject for q in inquiries.ended(CHECKER)) == [2, 3]  # the first one's answer counts no more
    assert inquiries.idle
