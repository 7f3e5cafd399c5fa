"""The explorer's work: what is asked of the helpers, and what their answers change in the session.

No screen here: the application hands answers in (`checker_said`, `planner_said`, `…_died`) and gets news to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hapdsl.explore.inquiries import ADVISER, CHECKER, Inquiries, Question
from hapdsl.explore.log import Log
from hapdsl.explore.moving import moved
from hapdsl.explore.protocol import analysis_from, findings_from
from hapdsl.explore.session import BASELINE, BASELINES, SYNTHESISED, Plan, Session
from hapdsl.explore.state import Analysis, Document, Finding
from hapdsl.explore.workers import Checks, Connect, Helper, Object
from hapdsl.lang.amounts import in_seconds


@dataclass(frozen=True)
class Checked:
    """A document has a new analysis."""

    key: str


@dataclass(frozen=True)
class Formatted:
    """The formatter's answer for one version of a text, or why there is none; the text is to be saved in `target`, where there is one."""

    key: str
    version: int
    target: Path | None
    text: str | None
    findings: tuple[Finding, ...] = ()
    failed: str = ""

    @property
    def trouble(self) -> str:
        """Why there is no text, in words."""
        if self.findings:
            return f"Line {self.findings[0].line} doesn't parse: {self.findings[0].message}"
        return f"It can't be formatted: {self.failed}"


@dataclass(frozen=True)
class Rewritten:
    """A plan's document has a new text that no person wrote."""

    key: str


@dataclass(frozen=True)
class Searching:
    """The search said what it does, or ended."""


@dataclass(frozen=True)
class Trouble:
    """Something to tell in words."""

    words: str
    severity: str = "error"


@dataclass(frozen=True)
class Answered:
    """An answer to a question; one that failed has `failed` or `findings`."""

    question: Question
    answer: Object


News = Answered | Checked | Formatted | Rewritten | Searching | Trouble


@dataclass
class Work:
    """`hear(which, answer)` and `miss(which, words)` are called from the event loop for what helpers say; `which` names the helper."""

    session: Session
    model: str | None
    cluster: str | None
    settings: Mapping[str, Any]
    connect: Connect
    hear: Callable[[str, Object], None]
    miss: Callable[[str, str], None]
    checker: Helper | None = None
    planner: Helper | None = None
    adviser: Helper | None = None
    runs: int = 0  # searches so far: answers of an earlier one are dropped
    outcome: str = ""  # how the last search ended
    log: Log = field(default_factory=Log)  # of the last search
    formats: dict[int, tuple[str, int, Path | None]] = field(default_factory=dict)
    asked: int = 0
    before: tuple[Analysis | None, str] = (None, "")  # what was known when the last check was sent, and of which text
    helpers: list[Helper] = field(default_factory=list)  # all that were ever started

    def __post_init__(self) -> None:
        self.checks = Checks(self._send_check)
        self.inquiries = Inquiries(self.session, self._send_question)

    @property
    def idle(self) -> bool:
        return self.checks.idle and not self.formats and self.inquiries.idle

    @property
    def searching(self) -> bool:
        return self.planner is not None

    async def stop(self) -> None:
        """Kill what runs, and wait until it is gone."""
        for helper in self.helpers:
            helper.kill()
        self.checker = self.planner = self.adviser = None
        for helper in self.helpers:
            await helper.gone()

    def _connect(self, which: str, later: bool) -> Helper:
        helper = self.connect(lambda a: self.hear(which, a), lambda w: self.miss(which, w), later)
        self.helpers.append(helper)
        return helper

    # -- checking and formatting -----------------------------------------------------

    def check(self, document: Document) -> None:
        """Have this version looked at, unless it was."""
        if document.checking:
            self.checks.want(document.key, document.version)

    def format(self, document: Document, target: Path | None = None) -> None:
        """Ask for the formatted text, to be saved in `target` if one is named."""
        self.asked += 1
        self.formats[-self.asked] = (document.key, document.version, target)
        self._checker().ask({"id": -self.asked, "do": "format", "path": document.name, "text": document.text})

    def _send_check(self, number: int, key: str, version: int) -> None:
        document = self.session.documents[key]
        self.before = document.analysis, document.analysed
        since = document.analysis.version if document.analysis is not None else None
        self._checker().ask({
            "id": number, "do": "check", "path": document.name, "version": version, "text": document.text, "cluster": self.cluster, "since": since,
            "document": key,
        })  # fmt: skip
        self.inquiries.sent.setdefault(CHECKER, set()).add((key, version))

    def _send_question(self, which: str, request: Object) -> None:
        (self._checker() if which == CHECKER else self._adviser()).ask({"cluster": self.cluster, **request})

    def _adviser(self) -> Helper:
        if self.adviser is None:
            self.adviser = self._connect(ADVISER, True)
        return self.adviser

    def _checker(self) -> Helper:
        if self.checker is None:
            self.checker = self._connect(CHECKER, False)
        return self.checker

    def said(self, which: str, answer: Object) -> list[News]:
        """A helper answered."""
        name, _, run = which.partition(" ")
        if run:
            return self.planner_said(int(run), answer)
        number = answer.get("id", 0)
        if name == CHECKER and isinstance(number, int):
            return self.checker_said(answer)
        question = self.inquiries.heard(number, answer)
        return [] if question is None else [Answered(question, answer)]

    def died(self, which: str, words: str) -> list[News]:
        """A helper ended by itself."""
        name, _, run = which.partition(" ")
        if run:
            return self.planner_died(int(run), words)
        lost = self.inquiries.ended(name)
        news: list[News] = [Answered(q, {"failed": f"the {name} stopped ({words})", "done": True}) for q in lost]
        if name == CHECKER:
            return [*news, *self.checker_died(words)]
        self.adviser = None
        return [*news, Trouble(f"the adviser stopped ({words}); the next question starts it again")]

    def give_up(self) -> bool:
        """Stop what the adviser works on: whoever asked is answered that it was stopped. False where it has nothing to do."""
        open_ones = [q for q in self.inquiries.flying.values() if q.helper == ADVISER]
        if self.adviser is None or not open_ones:
            return False
        self.adviser.kill()
        self.adviser = None
        self.inquiries.sent.pop(ADVISER, None)
        for question in open_ones:
            self.hear(ADVISER, {"id": question.number, "failed": "stopped", "done": True})
        return True

    def checker_said(self, answer: Object) -> list[News]:
        number = answer.get("id", 0)
        if number in self.formats:
            findings = findings_from(answer.get("findings", ()))
            return [Formatted(*self.formats.pop(number), answer.get("text"), findings, str(answer.get("failed", "")))]
        before = self.before  # the next check may be sent as soon as this one has landed
        about = self.checks.landed(number)
        if about is None:
            return []
        key, version = about
        if "failed" in answer:
            return [Trouble(f"checking failed: {answer['failed']}")]
        document = self.session.documents.get(key)
        if document is None or document.version != version:
            return []
        last, text = before
        found = analysis_from(answer["analysis"], version, last, moved(text, document.text))
        return [Checked(key)] if self.session.accept(key, found) else []

    def checker_died(self, words: str) -> list[News]:
        self.checker = None
        waiting, self.formats = self.formats, {}
        again = self.checks.crashed()
        more = "it is asked once more" if again else "the next edit starts it again"
        unformatted = [Formatted(*asked, None, failed=f"the checker stopped ({words})") for asked in waiting.values()]
        return [Trouble(f"the checker stopped ({words}); {more}"), *unformatted]

    # -- planning ----------------------------------------------------------------------

    def plan(self, gap: float | None = None) -> None:
        """Start a search for the model of the main document, until `gap` is reached."""
        self.cancel()
        self.runs += 1
        self.log = Log()
        self.session.searching, self.outcome = "starting", ""
        main = self.session.main
        current = self.session.current
        self.planner = self._connect(f"planner {self.runs}", True)
        self.planner.ask({
            "id": self.runs, "do": "plan", "path": main.name, "text": main.text, "model": self.model, "cluster": self.cluster,
            "settings": dict(self.settings), "program": current[1] if current is not None and current[0] == main.key else None, "gap": gap,
        })  # fmt: skip

    def cancel(self) -> bool:
        """Stop the search and keep what it found; False where none runs."""
        if self.planner is None:
            return False
        self.planner.kill()
        self._ended("stopped; the best so far is kept" if self._best() else "stopped")
        return True

    def pause(self) -> bool | None:
        """Hold the search, or let it go on; True where it is held now, None where none runs or it can't be held."""
        if self.planner is None or not self.planner.hold(not self.log.held):
            return None
        self.log.hold(not self.log.held)
        return self.log.held

    def _best(self) -> bool:
        return any(p.origin == SYNTHESISED for p in self.session.plans.values())

    def _ended(self, how: str) -> None:
        self.planner = None
        self.log.end()
        self.session.searching, self.outcome = "", how
        for key, plan in self.session.plans.items():
            if plan.doing:
                self.session.plans[key] = replace(plan, doing="")

    def planner_said(self, run: int, answer: Object) -> list[News]:
        if run != self.runs or self.planner is None:
            return []
        news: list[News] = []
        if answer.get("started") and answer.get("guessed"):
            news.append(Trouble("no cluster is described: plans are for this machine's cores, guessed", "warning"))
        if "doing" in answer:
            best = answer.get("best_s")
            self.log.note(answer["doing"], best, answer.get("bound_s"))
            self.session.searching = answer["doing"] + (f", best {in_seconds(best)}" if best is not None else "")
            news.append(Searching())
        if "plan" in answer:
            news += self._planned(answer)
            if "gap" in answer:
                self.log.proven(answer)
        if answer.get("done"):
            found = findings_from(answer.get("findings", ()))
            if "failed" in answer:
                news.append(Trouble(f"the search failed: {answer['failed']}"))
            how = f"{found[0].code} {found[0].message}" if found else answer.get("failed", "done")
            self.planner.kill()
            self._ended(how)
            news.append(Searching())
        return news

    def planner_died(self, run: int, words: str) -> list[News]:
        if run != self.runs or self.planner is None:
            return []
        self._ended(f"stopped by itself ({words})")
        return [Trouble(f"the search stopped ({words}); F5 starts it again"), Searching()]

    def _planned(self, answer: Object) -> list[News]:
        """Put a plan beside the others. One that a person has edited or saved stays as it is, and the new one gets a place of its own."""
        name, program = str(answer["plan"]), str(answer["program"])
        key = f"{name} {answer['path']}"
        while key in self.session.documents and self.session.documents[key].claimed:
            key += "'"
        document = self.session.documents.get(key)
        if document is None:
            document = self.session.open(Document(key, answer["text"], suggested=Path(answer["path"])))
        else:
            document.edit(answer["text"], by_hand=False)
        document.saved = answer["text"]  # whoever takes all edits back has nothing to lose
        last = name != "plan" or "gap" in answer
        plan = Plan(
            key,
            program,
            BASELINE if name in BASELINES else SYNTHESISED,
            BASELINES.get(name) or program,
            answer.get("bound_s"),
            answer.get("gap"),
            answer.get("scope", ""),
            "" if last else "best so far",
        )
        self.session.put(plan)
        self.session.accept(key, analysis_from(answer["analysis"], document.version))
        return [Rewritten(key)]
