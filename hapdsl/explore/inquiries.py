"""Questions about texts, on their way: per topic only the newest answer counts.

A question names its documents by key and version: two of them may have the same path. Texts travel once per helper; a helper that has lost one says so, and gets it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hapdsl.explore.session import Session
from hapdsl.explore.state import Document
from hapdsl.explore.workers import Object

CHECKER, ADVISER = "checker", "adviser"
Plans = Sequence[tuple[Document, str]]  # documents, each with one of its programs


@dataclass
class Question:
    """`subject` is whatever the asker wants to see again with the answer."""

    number: str
    topic: str
    helper: str
    do: str
    plans: list[tuple[str, int, str]]  # document, its version, program
    fields: Object
    subject: Any
    several: bool = False


@dataclass
class Inquiries:
    """`send(helper, request)` takes requests. A question of the checker waits until the one before is answered; of those that
    wait under one topic the newest stays. The adviser gets all at once and cuts old ones short itself."""

    session: Session
    send: Callable[[str, Object], None]
    count: int = 0
    current: dict[str, Question] = field(default_factory=dict)  # by topic: whose answers count
    flying: dict[str, Question] = field(default_factory=dict)  # by number: sent, not done
    waiting: dict[str, Question] = field(default_factory=dict)  # by topic
    sent: dict[str, set[tuple[str, int]]] = field(
        default_factory=dict
    )  # by helper: documents (keys) and versions that it has

    def ask(
        self,
        topic: str,
        do: str,
        plans: Plans,
        subject: Any = None,
        helper: str = CHECKER,
        several: bool = False,
        **fields: Any,
    ) -> None:
        """Ask about some programs of documents as they are now."""
        self.count += 1
        named = [(d.key, d.version, program) for d, program in plans]
        question = Question(f"q{self.count}", topic, helper, do, named, fields, subject, several)
        self.current[topic] = question
        if helper == CHECKER and any(q.topic == topic for q in self.flying.values()):
            self.waiting[topic] = question
        else:
            self._send(question)

    @property
    def idle(self) -> bool:
        return not self.flying and not self.waiting

    def heard(self, number: object, answer: Object) -> Question | None:
        """An answer came: whose, where it still counts."""
        question = self.flying.get(str(number))
        if question is None:
            return None
        counts = self.current.get(question.topic) is question
        if answer.get("done"):
            del self.flying[question.number]
            again = answer.get("lost") or answer.get("dropped")
            if answer.get("lost"):
                self.sent[question.helper] = set()
            if again:
                if counts and self._stands(question):
                    self._send(question)
                return None
            following = self.waiting.pop(question.topic, None)
            if following is not None:
                self._send(following)
        return question if counts else None

    def ended(self, helper: str) -> list[Question]:
        """A helper is gone: the questions that it leaves open, sent or not, and that are not asked again by themselves."""
        self.sent.pop(helper, None)
        lost = [q for q in (*self.flying.values(), *self.waiting.values()) if q.helper == helper]
        self.flying = {n: q for n, q in self.flying.items() if q.helper != helper}
        self.waiting = {t: q for t, q in self.waiting.items() if q.helper != helper}
        return [q for q in lost if self.current.get(q.topic) is q]

    def _stands(self, question: Question) -> bool:
        """Is it about texts that are still there?"""
        documents = self.session.documents
        return all(key in documents and documents[key].version == version for key, version, _ in question.plans)

    def _send(self, question: Question) -> None:
        if not self._stands(question):
            return
        self.flying[question.number] = question
        references = [self._reference(question.helper, *plan) for plan in question.plans]
        request: Object = {"id": question.number, "do": question.do, "topic": question.topic, **question.fields}
        if question.several:
            request["plans"] = references
        else:
            request.update(*references)
        self.send(question.helper, request)

    def _reference(self, helper: str, key: str, version: int, program: str) -> Object:
        document = self.session.documents[key]
        found: Object = {"path": document.name, "document": key, "version": version, "program": program}
        known = self.sent.setdefault(helper, set())
        if (key, version) not in known:
            found["text"] = document.text
            known.add((key, version))
        return found
