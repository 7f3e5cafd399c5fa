"""From simulated rows to the tables of docs/performance.md that stand beside the paper's figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks import paper_reference as paper
from benchmarks import reference
from benchmarks.pages import markdown
from benchmarks.paper_cases import MODELS, SIZES, VIRTUAL, Case
from benchmarks.paper_claims import shortfalls
from benchmarks.rows import Row

BESIDE_A_PLAN = ("ablation", "concurrent")  # kinds that compare with the plan of the point of the same model and size
TITLES = {"vgg19": "VGG19", "vit": "ViT", "bert": "BERT", "bert_moe": "BERT-MoE"}
BEDS = {"paper_hetero": "16 V100 and 48 P100", "paper_homo": "32 P100"}
KINDS = {"paper_hetero": "V100 and P100", "paper_homo": "P100"}
# Our baselines beside the paper's systems. Its DeepSpeed: ZeRO, or expert parallelism where there are experts.
SYSTEMS = (
    ("dp_even", "DP-EV", "DP-EV"),
    ("dp_proportional", "DP-CP", "DP-CP"),
    ("zero", "DeepSpeed", "ZeRO"),
    ("expert_parallel", "DeepSpeed", "expert parallel"),
    ("tensor_parallel", "", "tensor parallel"),
)


def tables(rows: Sequence[Row]) -> str:
    makers: tuple[tuple[str, Callable[[Sequence[Row]], str]], ...] = (
        ("point", points),
        ("ablation", ablation),
        ("concurrent", concurrent),
        ("experts", experts),
        ("factors", factors),
        ("crossing", crossing),
        ("shares", shares),
        ("synthesis", synthesis),
    )
    found = list(complete(rows))
    return "\n".join(make(mine) for kind, make in makers if (mine := [r for r in found if r["kind"] == kind]))


def complete(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows with what was found. Studies that stand beside the plan of a point have its seconds, too; they wait for that."""
    plans = {_key(r): r["found"]["plan_s"] for r in rows if r["kind"] == "point" and "found" in r}
    for row in rows:
        if row["kind"] in BESIDE_A_PLAN and "found" in row and _key(row) in plans:
            yield {**row, "found": {**row["found"], "plan_s": plans[_key(row)]}}
        elif row["kind"] not in BESIDE_A_PLAN and "found" in row:
            yield row


def _key(row: Row) -> tuple[object, ...]:
    return row["testbed"], row["model"], row["devices"], row["nodes"], tuple(sorted(row["settings"].items()))


def points(rows: Sequence[Row]) -> str:
    flat = {(r["testbed"], r["model"], r["devices"]): r["found"] for r in rows if r["nodes"] != VIRTUAL}
    inner = {(r["testbed"], r["model"], r["devices"]): r["found"] for r in rows if r["nodes"] == VIRTUAL}
    parts = []
    for bed, words in BEDS.items():
        lines = []
        for model in MODELS:
            for at, size in enumerate(SIZES[bed]):
                found = flat.get((bed, model, size))
                if found is not None:
                    lines.append(_point(bed, model, size, at, found, inner.get((bed, model, size))))
        if lines:
            head = (
                "model, devices",
                "HAP",
                "TAG",
                "ours",
                "overlapped",
                "on fewer",
                "virtual machines",
                *(w for n, _, w in SYSTEMS if n in _priced(bed)),
            )
            head = (
                *head,
                "DP-EV / plan",
                *(("DP-CP / plan",) if bed == "paper_hetero" else ()),
                "best baseline / plan",
            )
            parts.append(f"### Seconds a step on up to {words} (paper / ours)\n\n{markdown(head, lines)}")
    every = (*flat.values(), *inner.values())
    ratios = [r for r in map(gain, every) if r is not None]
    if ratios:
        parts += [claims(flat), predicted(flat)]
        parts.append(
            f"Of {len(ratios)} points a plan is above a baseline at {sum(r < 1 - 1e-9 for r in ratios)};"
            f" the least ratio of the best baseline to the plan is {min(ratios):.3f}.{''.join(f' {line}.' for line in shortfalls(rows))}\n"
        )
    return "\n".join(parts)


def _priced(bed: str) -> tuple[str, ...]:
    """The baselines that differ on a testbed: where all devices are alike, shares by speed are even."""
    return tuple(n for n, _, _ in SYSTEMS if bed == "paper_hetero" or n != "dp_proportional")


def gain(found: Row, among: Iterable[str] = ()) -> float | None:
    """How many times as long as the plan the fastest baseline takes, of all or `among` some; None where there is none."""
    priced = {n: both[0] / found["plan_s"] for n, both in found["baselines"].items() if both}
    return min((priced[n] for n in among or priced if n in priced), default=None)


def claims(flat: Mapping[tuple[str, str, int], Row]) -> str:
    """By how much the paper's text says that HAP is faster than what is best of the others, and our plan at the same size."""
    lines = []
    measured = [name for name, system, _ in SYSTEMS if system]
    for bed, model, size, theirs in paper.CLAIMS:
        ours = gain(flat[bed, model, size], measured) if (bed, model, size) in flat else None
        lines.append((f"{TITLES[model]}, {size} {KINDS[bed]}", f"{theirs:.2f}", ratio(ours)))
    head = (
        "the paper's claims",
        "fastest other system / HAP",
        "ours: fastest baseline / plan, without tensor parallelism",
    )
    return markdown(head, lines)


def predicted(flat: Mapping[tuple[str, str, int], Row]) -> str:
    """Our predictions of the systems that the paper measured beside HAP, on the same models and sizes: how far they are off."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for (bed, model, size), found in flat.items():
        at = SIZES[bed].index(size)
        for name, system, _ in SYSTEMS:
            there = paper.FIGURES[bed, model].get(system, (None,) * 4)[at]
            ours = found["baselines"].get(name)
            if there is not None and ours and not (name == "zero" and model == "bert_moe"):
                pairs.setdefault(model, []).append((there, ours[0]))
    if not pairs:  # only virtual machines so far
        return ""
    lines = []
    for model, both in [
        *((TITLES[m], pairs[m]) for m in MODELS if m in pairs),
        ("all", [b for p in pairs.values() for b in p]),
    ]:
        ratios = [ours / there for there, ours in both]
        lines.append(
            (model, str(len(both)), f"{min(ratios):.2f}", f"{float(np.median(ratios)):.2f}", f"{max(ratios):.2f}")
        )
    head = ("DP-EV, DP-CP and DeepSpeed", "figures", "predicted / measured, least", "median", "most")
    return markdown(head, lines)


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _point(bed: str, model: str, size: int, at: int, found: Row, inner: Row | None) -> Sequence[str]:
    theirs = paper.FIGURES[bed, model]
    own = {n: both[0] if both else None for n, both in found["baselines"].items()}
    plan, hap = found["plan_s"], theirs["HAP"][at]

    def beside(name: str, system: str) -> str:
        if name not in own:
            return ""
        ours = "no room" if own[name] is None else number(own[name])
        asked = system in theirs and not (name == "zero" and model == "bert_moe")  # DeepSpeed's experts aren't its ZeRO
        return f"{number(theirs[system][at])} / {ours}" if asked else ours

    def both(name: str, system: str) -> str:
        there = theirs[system][at] if system in theirs else None
        said = f"{there / hap:.2f} / " if there is not None and hap is not None else ""
        return said + (f"{own[name] / plan:.2f}" if own.get(name) is not None else "–")

    return (
        f"{TITLES[model]}, {size}",
        number(hap),
        number(theirs["TAG"][at]) if "TAG" in theirs else "",
        number(plan),
        number(found["overlap_s"]),
        number(found["best_s"]) if found["left_out"] else "",
        "" if inner is None else number(inner["plan_s"]),
        *(beside(n, system) for n, system, _ in SYSTEMS if n in _priced(bed)),
        *(both(n, system) for n, system in (("dp_even", "DP-EV"), ("dp_proportional", "DP-CP")) if n in _priced(bed)),
        ratio(gain(found)),
    )


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def ablation(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        f = row["found"]
        whole = f["plan_s"]
        at = [None if f[k] is None else 100 * whole / f[k] for k in ("dp_even", "program", "program_shares")] + [100.0]
        steps = [at[0], *(None if b is None else b - (a or 0) for a, b in itertools.pairwise(at))]
        theirs = paper.ABLATION[row["model"]]
        shares_alone = "–" if f["shares"] is None else f"{100 * whole / f['shares']:.0f}"
        lines.append(
            (
                TITLES[row["model"]],
                *(f"{_whole(t)} / {_whole(o)}" for t, o in zip(theirs, steps, strict=True)),
                shares_alone,
            )
        )
    head = ("model", "DP-EV", "+ program", "+ shares", "+ collectives", "DP, shares alone")
    return (
        f"### What each part gives at 64 devices, in % of the full throughput (paper / ours)\n\n{markdown(head, lines)}"
    )


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def concurrent(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        f = row["found"]
        apart = f["big"] + f["small"]
        together = Case(**{k: row[k] for k in ("kind", "model", "devices", "settings")}).scaled()["batch"] / f["plan_s"]
        lines.append(
            (
                TITLES[row["model"]],
                str(paper.CONCURRENT[row["model"]]),
                f"{100 * together / apart:.0f}",
                f"{100 * f['big'] / apart:.0f}",
            )
        )
    head = ("model", "HAP, %", "ours, %", "the V100s' part, %")
    return f"### One job on 64 devices, in % of what one on the V100s and one on the P100s do together\n\n{markdown(head, lines)}"


def experts(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        f, count = row["found"], row["settings"]["experts"]
        hap, padded = paper.EXPERTS.get(count, (None, None))
        most, at = paper.EXPERTS_MOST
        theirs = padded / hap if hap and padded else most if count == at else None
        ours = f["padded_s"] / f["plan_s"] if f["padded_s"] and f["plan_s"] else None  # either may have no room
        lines.append(
            (
                str(count),
                f"{number(hap)} / {number(f['plan_s'])}",
                f"{number(padded)} / {number(f['padded_s'])}",
                f"{ratio(theirs)} / {ratio(ours)}",
            )
        )
    head = ("experts", "uneven, s", "padded to a multiple of four, s", "ratio")
    return f"### Uneven experts on 2 A100 and 2 P100 (paper / ours)\n\n{markdown(head, lines)}"


def factors(rows: Sequence[Row]) -> str:
    lines = [
        (f"{r['number']:g}", *(number(r["found"][k]) for k in ("reduced_s", "gathered_s", "plan_s"))) for r in rows
    ]
    head = ("batch of each device", "gradients reduced, s", "or factors gathered (SFB), s", "the plan, s")
    return f"### Sufficient factors: data parallelism of VGG19 on 8 devices\n\n{markdown(head, lines)}"


def crossing(rows: Sequence[Row]) -> str:
    f = rows[0]["found"]
    lines = [(f"padded, {p:g}", f"{s:g}", f"{f['padded'][str(p)]:.2f}") for p, s in paper.PADDED.items()]
    lines += [
        ("grouped", "{:g} to {:g}".format(*paper.GROUPED), f"{f['grouped']:.2f}"),
        ("they cross at", "{:g} to {:g}".format(*paper.CROSSING), f"{f['crossing']:.3f}"),
    ]
    head = ("all_gather, largest part", "paper, GB/s", "ours, GB/s")
    return f"### Padded or grouped: 4 MB on four A100 in two machines\n\n{markdown(head, lines)}"


def shares(rows: Sequence[Row]) -> str:
    lines, signs = [], []
    for row in rows:
        even, speed = row["found"]["even"], row["found"]["by_speed"]
        balance = even["compute_s"] / even["communication_s"]
        signs.append((balance, even["cost_s"] / speed["cost_s"]))
        lines.append(
            (f"{row['number']:g}", f"{balance:.2f}", f"{1e3 * even['cost_s']:.0f}", f"{1e3 * speed['cost_s']:.0f}")
        )
    head = ("batch", "computing / communicating", "even, ms", "by speed, ms")
    said = ", ".join(f"{r:g}: {e} and {s}" for r, s, e in paper.SHARES)
    return (
        f"### Even shares or shares by speed: BERT fully sharded on 2 A100 and 2 P100\n\n{markdown(head, lines)}\n"
        f"Ours tie at {tie(signs)}, the paper's at {paper.SHARES_TIE}. Its transformer, computing / communicating: ms with even shares and by speed: {said}.\n"
    )


def tie(points: Iterable[tuple[float, float]]) -> str:
    """Where the ratio of costs passes 1, on straight lines between the points."""
    ordered = sorted(points)
    for (x, a), (y, b) in itertools.pairwise(ordered):
        if (a - 1) * (b - 1) <= 0 and a != b:
            return f"{x + (y - x) * (1 - a) / (b - a):.2f}"
    return "none of these"


def synthesis(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        layers = row["settings"]["layers"]
        said = [str(layers), f"{reference.PUBLISHED_VIT[layers]:.2f}"]
        for part in ("forward", "training"):
            f = row["found"][part]
            said += [str(f["calls"]), f"{f['settled_s']:.2f}", f"{f['all_s']:.2f}"]
        lines.append((*said, f"{100 * row['found']['training']['gap']:.2f} %"))
    head = (
        "layers",
        "HAP, s",
        "forward pass, calls",
        "settled, CPU s",
        "with its proof",
        "training graph, calls",
        "settled, CPU s",
        "with its proof",
        "gap",
    )
    return f"### Time to find a program: ViT by layers, 64 devices\n\n{markdown(head, lines)}"
