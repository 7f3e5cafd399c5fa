"""`python docs/pictures.py`: every picture of the documentation, drawn anew into docs/pictures (wants Graphviz's `dot`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import graphviz
from bound import bound_svg

from hapdsl.search.structure import Structure
from hapdsl.workbench import Workbench

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
SHOWN = """
model product(batch = 8, d = 6, out = 4) {
    input x : f32[batch, d]
    param w : f32[d, out]
    y = matmul(x, w)
    h = relu(y)
    loss = sum(h, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


def choices() -> None:
    """The variables of a product and a relu: rules as boxes, offered sets as rounded ones."""
    training = Workbench("product.hap", SHOWN).graph("product")
    structure = Structure(training, messages=())
    dot = graphviz.Graph(
        "choices",
        graph_attr={"rankdir": "LR", "nodesep": "0.15"},
        node_attr={"fontname": "Helvetica", "fontsize": "10"},
    )
    shown = [k for k, n in enumerate(training.nodes) if n.section == "forward"]
    for k in shown:
        node = training.nodes[k]
        rules = "".join(
            f"{', '.join(map(str, r.inputs))} → {', '.join(map(str, r.outputs))}\\l" for r in structure.rules[k]
        )
        dot.node(
            f"rule {k}",
            f"rule of {node.outputs[0]} = {node.op}\\n{rules}",
            shape="box",
            style="filled",
            fillcolor="#fff3d6",
        )
    for name, variable in structure.offer_variable.items():
        near = [k for k in shown if name in (*training.nodes[k].inputs, *training.nodes[k].outputs)]
        if not near:
            continue
        if name in structure.offers:
            sets = [" and ".join(map(str, o)) for o in structure.offers[name]]
            label = f"{name} is offered as\\n" + "".join(f"{s}\\l" for s in sets)
        else:
            held = dict.fromkeys(str(h) for h, _ in structure.holds[name])
            label = f"{name} is held as {', '.join(held)},\\noffered as …"
        dot.node(f"offer {variable}", label, shape="box", style="rounded,filled", fillcolor="#e2f0fb")
        for k in near:
            made = name in training.nodes[k].outputs
            dot.edge(
                f"rule {k}", f"offer {variable}", label="makes" if made else "reads", fontsize="9", fontname="Helvetica"
            )
    dot.render(PICTURES / "choices", format="svg", cleanup=True)


def hapdsl(*arguments: object) -> None:
    """A verb of the command line."""
    subprocess.run(
        [sys.executable, "-m", "hapdsl", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
    )


def cluster() -> None:
    """The paper's testbed."""
    hapdsl("draw", "programs/clusters/paper_hetero.hap", "-o", PICTURES / "cluster.svg")


def plans() -> None:
    """The plan of the README's tour, and its timeline."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.hap"
        hapdsl("plan", "programs/models/mlp.hap", "--cluster", "programs/clusters/digits.hap", "-o", plan)
        hapdsl("draw", plan, "-o", PICTURES / "plan.svg")
        hapdsl("draw", plan, "-o", PICTURES / "timeline.svg", "--timeline", "overlap")


def main() -> None:
    """Draw everything."""
    PICTURES.mkdir(exist_ok=True)
    choices()
    (PICTURES / "bound.svg").write_text(bound_svg(), encoding="utf-8")
    cluster()
    plans()


if __name__ == "__main__":
    main()
