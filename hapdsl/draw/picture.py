"""What a drawing holds, and its DOT text. Nothing here knows what the boxes mean."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import graphviz

FONT = "Helvetica,Arial,sans-serif"
INK, QUIET, LINE, MARK = "#1f2937", "#6b7280", "#9ca3af", "#c81e1e"
# Above this many boxes dot's best splines take long, so lines are drawn straight.
SPLINES_UP_TO = 250
LARGE = 50  # boxes: whoever looks at all of them at once stands further away, and title and legend are larger


@dataclass(frozen=True)
class Box:
    """One node. `title` is set in bold over the smaller `lines`; two `colours` run into each other. `rows` are (words, colour) above the title.

    `weight` (bytes) makes a box wider; `group` is the path of clusters it stands in, outermost first. A `dashed` box stands for
    something drawn elsewhere, a `marked` one has a border that is seen from afar.
    """

    title: str
    lines: tuple[str, ...] = ()
    colours: tuple[str, ...] = ("#ffffff",)
    shape: str = "box"
    weight: float = 0.0
    group: tuple[str, ...] = ()
    dashed: bool = False
    marked: bool = False
    rows: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Edge:
    """`source` and `target` number boxes. `back` edges don't take part in the layout, `hidden` ones do only that."""

    source: int
    target: int
    label: str = ""
    strong: bool = False
    back: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class Cluster:
    """A frame around boxes; `quiet` ones have no border. The label stands at the top, or `below`, where no edge enters."""

    label: str
    quiet: bool = False
    below: bool = False


@dataclass
class Picture:
    """Boxes, edges, and the frames by the paths that boxes name. The legend explains `colours` and `shapes`, each with its words."""

    title: str
    notes: tuple[str, ...] = ()
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    clusters: dict[tuple[str, ...], Cluster] = field(default_factory=dict)
    colours: tuple[tuple[str, str], ...] = ()
    shapes: tuple[tuple[str, str], ...] = ()


def to_dot(picture: Picture) -> str:
    """The DOT text of a picture; equal pictures give equal text. Any characters may stand in its words."""
    dot = graphviz.Digraph(
        "picture",
        graph_attr={
            "label": _title(picture), "labelloc": "t", "labeljust": "l", "fontname": FONT, "fontcolor": INK,
            "rankdir": "TB", "ranksep": "0.35", "nodesep": "0.25", "pad": "0.25", "bgcolor": "white",
        },
        node_attr={
            "shape": "box", "style": "filled", "fontname": FONT, "fontsize": "11", "fontcolor": INK, "color": LINE,
            "margin": "0.12,0.06", "height": "0.3",
        },
        edge_attr={"color": LINE, "arrowsize": "0.6", "fontname": FONT, "fontsize": "9", "fontcolor": QUIET},
    )  # fmt: skip
    if len(picture.boxes) > SPLINES_UP_TO:
        # Ranks and order are looked for with bounded effort, so that a large picture takes seconds.
        dot.attr("graph", splines="line", nslimit="2", nslimit1="2", mclimit="0.5")
    _cluster(dot, picture, ())
    for edge in picture.edges:
        dot.edge(f"n{edge.source}", f"n{edge.target}", **_edge(edge))
    if picture.colours or picture.shapes:
        large = {"fontsize": "16"} if len(picture.boxes) > LARGE else {}
        dot.node("legend", _legend(picture), shape="plain", style="", **large)
    return dot.source


def _cluster(dot: graphviz.Digraph, picture: Picture, path: tuple[str, ...]) -> None:
    """The boxes of one frame in their order, then the frames inside it."""
    for number, box in enumerate(picture.boxes):
        if box.group == path:
            dot.node(f"n{number}", _label(box), **_box(box))
    inner = dict.fromkeys(
        b.group[: len(path) + 1] for b in picture.boxes if len(b.group) > len(path) and b.group[: len(path)] == path
    )
    for k, sub in enumerate(inner):
        cluster = picture.clusters[sub]
        with dot.subgraph(name="_".join(["cluster", *(str(i) for i in (len(path), k)), *map(_id, sub)])) as frame:
            frame.attr(
                label=f"<{_text(cluster.label)}>", labeljust="l", fontname=FONT, fontsize="12" if cluster.quiet else "11", fontcolor=QUIET,
                style="rounded,filled", color="#e5e7eb" if cluster.quiet else LINE, fillcolor="#fbfbfc" if cluster.quiet else "#f3f4f6",
            )  # fmt: skip
            if cluster.below:
                frame.attr(labelloc="b")
            _cluster(frame, picture, sub)


def _id(word: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"x{ord(c):x}" for c in word)


def _box(box: Box) -> dict[str, str]:
    found = {"fillcolor": ":".join(box.colours[:2])}
    if box.shape != "box":
        found["shape"] = box.shape
    if box.shape == "cds":
        found["margin"] = "0.18,0.14"  # dot's own leaves no room for three lines
    if box.weight > 0:
        # From a kilobyte on, every factor of ten adds to the width.
        found["width"] = f"{1.6 + 0.4 * max(0.0, math.log10(box.weight / 1024)):.2f}"
        found |= {"margin": "0,0", "penwidth": "1.6", "color": "#4b5563"}
    if box.marked:
        found |= {"penwidth": "2.4", "color": MARK}
    if box.dashed:
        found["style"] = "filled,dashed"
    return found


def _edge(edge: Edge) -> dict[str, str]:
    if edge.hidden:
        return {"style": "invis"}
    found = {}
    if edge.label:
        found["label"] = f"<{_text(edge.label)}>"
    if edge.strong:
        found |= {"penwidth": "1.6", "color": "#4b5563"}
    if edge.back:
        found |= {"style": "dashed", "constraint": "false"}
    return found


# -- words -------------------------------------------------------------------------


def _text(word: str) -> str:
    """Text inside an HTML-like label: shown as it is, whatever it holds.

    A backslash, even as a number, would start one of dot's own escapes (`\\N` is the node's name), two of them are one
    that is shown; and dot's reader may move a `]` into the next cell. What can't be printed becomes U+FFFD.
    """
    seen = "".join(c if c.isprintable() else "\ufffd" for c in word)
    return html.escape(seen, quote=False).replace("\\", "&#92;" * 2).replace("]", "&#93;") or " "


def _label(box: Box) -> str:
    parts = [f"<B>{_text(box.title)}</B>"]
    parts += [_small(line) for line in box.lines]
    if not box.rows:
        return f"<{'<BR/>'.join(parts)}>"
    rows = [
        f'<TR><TD BORDER="1" COLOR="#ffffff" BGCOLOR="{colour}">{_small(words)}</TD></TR>' for words, colour in box.rows
    ]
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="1">{"".join(rows)}<TR><TD>{"<BR/>".join(parts)}</TD></TR></TABLE>>'


def _small(words: str) -> str:
    return f'<FONT POINT-SIZE="9" COLOR="#374151">{_text(words)}</FONT>'


def _title(picture: Picture) -> str:
    large = 2 if len(picture.boxes) > LARGE else 1
    parts = [f'<FONT POINT-SIZE="{16 * large}"><B>{_text(picture.title)}</B></FONT>']
    parts += [f'<FONT POINT-SIZE="{11 * large}" COLOR="{QUIET}">{_text(note)}</FONT>' for note in picture.notes]
    return "<" + "".join(f'{part}<BR ALIGN="LEFT"/>' for part in parts) + ">"


_SIGNS = {"box": "▭", "ellipse": "○", "hexagon": "⬡", "cds": "▷", "note": "▤", "rows": "≡"}


def _legend(picture: Picture) -> str:
    rows: Sequence[str] = [
        *(
            f'<TR><TD BGCOLOR="{colour}" WIDTH="28"></TD><TD ALIGN="LEFT">{_text(word)}</TD></TR>'
            for colour, word in picture.colours
        ),
        *(
            f'<TR><TD>{_SIGNS.get(shape, "")}</TD><TD ALIGN="LEFT">{_text(word)}</TD></TR>'
            for shape, word in picture.shapes
        ),
    ]
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3"><TR><TD COLSPAN="2" ALIGN="LEFT"><B>legend</B></TD></TR>{"".join(rows)}</TABLE>>'
