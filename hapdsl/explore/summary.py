"""The summary of a plan, in words: what is sharded and how, what it gains, who is near the limit, what limits the step."""

from __future__ import annotations

from typing import Any

from hapdsl.explore.describe import Piece
from hapdsl.explore.protocol import trouble
from hapdsl.explore.session import BASELINE, SYNTHESISED, Plan, Row, Session, gap_in_words
from hapdsl.explore.state import TEXT, Document
from hapdsl.lang.amounts import in_bytes, in_seconds

Facts = dict[str, Any]
NEAR = 0.85  # of the memory: from here on a device is near its limit
FEW = 12  # devices that are listed one by one


def summarise(session: Session, plan: Plan | None, facts: Facts | None, outcome: str = "") -> list[Piece]:
    """Words about the plan on the screen; `facts` are the service's (`overview`), None while they are on their way."""
    if plan is None:
        return _nothing_yet(session, outcome)
    document = session.documents[plan.document]
    found: list[Piece] = [(f"{plan.title}", "strong"), (f"  {_what(plan, document)}\n\n", "dim")]
    if facts is None:
        return [*found, *_without_facts(document, plan)]
    if "sync_s" not in facts:
        return [
            *found,
            (f"{trouble(facts)}\n", "error"),
            ("2 or enter opens the program, f8 goes to what is wrong\n", "dim"),
        ]
    found += _speed(session, plan, facts)
    found += _sharded(facts)
    found += _limits(facts)
    found += _memory(facts)
    found += _prices(facts)
    return [*found, ("\n2 or enter opens the program, f1 lists all keys, ctrl+p finds an action by name\n", "dim")]


def _nothing_yet(session: Session, outcome: str) -> list[Piece]:
    document = session.main
    found: list[Piece] = [(f"{document.title}\n\n", "strong")]
    errors = [f for f in document.findings if f.is_error]
    if session.importing:
        found.append(
            (f"{session.importing} is being imported: its text comes here, then its plans. esc stops it.\n", "")
        )
    elif session.not_imported:
        found += [("It could not be imported.\n", "error"), (f"{session.not_imported}\n", "")]
    elif errors:
        found.append((f"line {errors[0].line}: {errors[0].code} ", "error"))
        found.append((f"{errors[0].message}\n", ""))
    if session.searching:
        found.append(
            (
                f"A plan is being looked for: {session.searching}. Baselines come first; what is found shows up in the list.\n",
                "",
            )
        )
    elif outcome:
        found.append((f"The search ended: {outcome}\n", ""))
        if session.plans:
            found.append(("What it found is in the list.\n", ""))
    elif not errors and not session.importing and not session.not_imported:
        found.append(("There is no program here yet. p looks for a plan.\n", ""))
    return [*found, ("\n2 opens the text, f1 lists all keys\n", "dim")]


def _what(plan: Plan, document: Document) -> str:
    kind = {SYNTHESISED: "found by the search", BASELINE: "a baseline"}.get(plan.origin, f"in {document.title}")
    gap = f", {gap_in_words(plan.gap)} to the bound for {plan.scope.partition(':')[0]}" if plan.gap is not None else ""
    return f"{kind}{gap}"


def _without_facts(document: Document, plan: Plan) -> list[Piece]:
    state = document.state(plan.program) if plan.program else document.state_of_all
    if document.checking:
        return [("being checked…\n", "dim")]
    if state == TEXT:
        return [("There is no program in this text.\n", "")]
    if state == "sketch":
        return [("A sketch: it leaves lines or placements to the search, so it has no cost yet. c completes it.\n", "")]
    if state == "wrong":
        errors = [f for f in document.findings if f.is_error]
        first = f"line {errors[0].line}: {errors[0].code} {errors[0].message}\n" if errors else ""
        return [
            ("Not proven. ", "error"),
            (first, ""),
            ("2 or enter opens the program, f8 goes to what is wrong\n", "dim"),
        ]
    return [("being looked at…\n", "dim")]


# -- speed ------------------------------------------------------------------------


def _speed(session: Session, plan: Plan, facts: Facts) -> list[Piece]:
    found: list[Piece] = [
        (f"{facts['model']} on {facts['cluster']}: ", ""), (in_seconds(facts["sync_s"]), "strong"), (" a step, ", ""),
        (f"{in_seconds(facts['overlap_s'])} with communication beside compute.\n", ""),
    ]  # fmt: skip
    rows = session.rows()
    lines = [
        w
        for name, words in (("dp_even", "with equal shares"), ("dp_proportional", "with shares by speed"))
        if (w := _against(rows, plan, facts, name, words))
    ]
    if lines:
        found.append((f"{_sentence(lines)}\n", "good" if plan.origin != BASELINE else ""))
    elif plan.origin != BASELINE and not session.searching:
        found.append(("Data parallelism isn't priced yet, so there is nothing to compare with: p does that.\n", "dim"))
    return [*found, ("\n", "")]


def _against(rows: list[Row], plan: Plan, facts: Facts, name: str, words: str) -> str:
    """`1.9 times as fast as data parallelism with equal shares (2.1 ms)`."""
    base = next(
        (
            r
            for r in rows
            if r.plan.origin == BASELINE and r.plan.program.startswith(name) and r.model == facts["model"]
        ),
        None,
    )
    if base is None or base.plan.key == plan.key:
        return ""
    if not base.fits:
        return f"data parallelism {words} doesn't fit into memory"
    if base.seconds is None or not facts["sync_s"]:
        return ""
    ratio = base.seconds / facts["sync_s"]
    if abs(ratio - 1) < 5e-4:
        return f"as fast as data parallelism {words}"
    if ratio > 1:
        return f"{ratio:.3g} times as fast as data parallelism {words} ({in_seconds(base.seconds)})"
    return f"slower than data parallelism {words} ({in_seconds(base.seconds)})"


def _sentence(parts: list[str]) -> str:
    words = "; ".join(parts)
    return f"{words[0].upper()}{words[1:]}."


# -- shards and shares ------------------------------------------------------------


def _sharded(facts: Facts) -> list[Piece]:
    found: list[Piece] = [("What is cut and how\n", "strong")]
    kinds = dict.fromkeys(f["kind"] for f in facts["sharded"])
    for kind in kinds:
        own = [f for f in facts["sharded"] if f["kind"] == kind]
        parts = []
        for f in own:
            how = (
                f"cut by {f['by']}"
                if f["placement"] == "sharded"
                else "whole on every device"
                if f["placement"] == "replicated"
                else "as summands"
            )
            names = f" ({', '.join(f['names'])}{', …' if f['more'] else ''})" if len(own) > 1 else ""
            parts.append(f"{f['count'] if len(own) > 1 else 'all'} {how}{names}")
        found.append((f"  {kind}: ", "dim"))
        found.append((f"{'; '.join(parts)}\n", ""))
    if facts["shares"]:
        found.append(("Who takes how much\n", "strong"))
        for s in facts["shares"]:
            found.append((f"  {s['class']} ", "dim"))
            found.append((f"({s['units']} units): {_shares(s['shares'], facts)}\n", ""))
    return [*found, ("\n", "")]


def _shares(units: list[int], facts: Facts) -> str:
    """By kind of device where all of a kind take the same: `2 a100 take 76 each (59 %)`."""
    kinds: dict[str, list[int]] = {}
    for kind, n in zip(facts["kinds"], units, strict=True):
        kinds.setdefault(kind, []).append(n)
    total = sum(units) or 1
    parts = []
    for kind, own in kinds.items():
        low, high = min(own), max(own)
        each = f"{low}" if low == high else f"{low} to {high}"
        many = f"{len(own)} {kind} take {each} each" if len(own) > 1 else f"{kind} takes {each}"
        parts.append(f"{many} ({sum(own) / total * 100:.3g} %)" if high else f"{kind}: none")
    return ", ".join(parts)


# -- limits -----------------------------------------------------------------------


def _limits(facts: Facts) -> list[Piece]:
    total = facts["sync_s"] or 1.0
    share = facts["communication_s"] / total
    found: list[Piece] = [("What limits the step\n", "strong")]
    if facts["volumes"] and share >= 0.005:
        first = facts["volumes"][0]
        method = f" ({first['method']})" if first["method"] else ""
        rest = f"; {first['messages']} × {first['collective']}{method} of {in_bytes(first['bytes'])} take {in_seconds(first['seconds'])} of it"
        found.append(
            (
                f"  communication {in_seconds(facts['communication_s'])}, {share * 100:.3g} % of the step{rest if len(facts['volumes']) > 1 else ''}\n",
                "",
            )
        )
    else:
        found.append(("  next to no communication\n", ""))
    slow = facts["slowest"]
    if slow:
        d, seconds = slow[0]
        alike = [k for k, kind in enumerate(facts["kinds"]) if kind == facts["kinds"][d]]
        who = facts["devices"][d] if len(alike) == 1 else f"the {len(alike)} {facts['kinds'][d]}"
        found.append(
            (
                f"  compute {in_seconds(facts['compute_s'])}; {who} {'is' if len(alike) == 1 else 'are'} waited for in stages of {in_seconds(seconds)}\n",
                "",
            )
        )
    idle = facts["waiting"]
    if idle and max(idle) > 0.01 * total:
        d = max(range(len(idle)), key=idle.__getitem__)
        found.append(
            (
                f"  {facts['devices'][d]} waits longest for others: {in_seconds(idle[d])}, {idle[d] / total * 100:.3g} % of the step\n",
                "",
            )
        )
    return [*found, ("\n", "")]


def _memory(facts: Facts) -> list[Piece]:
    used = [m / c for m, c in zip(facts["memory"], facts["capacity"], strict=True)]
    if not used:
        return []
    order = sorted(range(len(used)), key=lambda d: -used[d])
    near = [d for d in order if used[d] >= NEAR]
    found: list[Piece] = [("Memory\n", "strong")]
    if any(u > 1 for u in used):
        over = [facts["devices"][d] for d in order if used[d] > 1]
        found.append((f"  doesn't fit: {', '.join(over[:FEW])} would need more than there is\n", "error"))
    elif near:
        found.append((f"  near the limit: {', '.join(facts['devices'][d] for d in near[:FEW])}\n", "warning"))
    else:
        found.append(("  nobody is near the limit\n", ""))
    d = order[0]
    largest = ", ".join(f"{name} {in_bytes(size)}" for name, size in facts["holders"])
    found.append(
        (
            f"  fullest: {facts['devices'][d]} with {in_bytes(facts['memory'][d])} of {in_bytes(facts['capacity'][d])} ({used[d] * 100:.2g} %); its largest: {largest}\n",
            "",
        )
    )
    return [*found, ("\n", "")]


def _prices(facts: Facts) -> list[Piece]:
    if facts["guessed"]:
        return [
            ("Prices are guessed from this machine's cores and memory; ", "warning"),
            ("hapdsl profile measures them.\n", ""),
        ]
    if facts["measured"]:
        named = facts["measured"]
        more = f" and {len(named) - 6} more" if len(named) > 6 else ""
        return [
            (
                f"Prices are measured where curves are there ({', '.join(named[:6])}{more}); the rest is computed from the cluster's figures.\n",
                "",
            )
        ]
    return [("Prices are computed from the figures that the cluster's text states; nothing was measured.\n", "")]
