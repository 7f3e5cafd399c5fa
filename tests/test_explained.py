"""What `hapdsl explain` shows: each wrong example brings about its code where it would stand in a file, and each right one is right there."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from hapdsl.cli import main
from hapdsl.lang.codes import CODES

HERE = "<example>"
DEVICE = "device d { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }"
LINK = "over { bandwidth = 12 GB/s, latency = 10 us }"


def cluster(inside: str = f"node host = 4 * d {LINK}", device: str = DEVICE) -> str:
    return f"cluster lab {{\n    {device}\n    {inside}\n}}\n"


def model(inside: str = HERE, before: str = "", parameters: str = "batch = 8, d = 12, heads = 3") -> str:
    """A model of a few names that answers with something, whatever else stands in it."""
    return f"""{before}
model m({parameters}) {{
    input x : f32[batch, d]
    input b : f32[batch, d]
    input label : i64[batch]
    frozen w1 : f32[d, 4]
    {inside}
    seen = tanh(x)
    output seen
}}
"""


def trained(inside: str = HERE, before: str = "") -> str:
    """A model with a loss, but for the line that trains it."""
    return f"""{before}
model m(batch = 8, d = 6) {{
    input x : f32[batch, d]
    input label : i64[batch]
    param head : f32[d, 4]
    param head.bias : f32[4]
    z = add(matmul(x, head), head.bias)
    {inside}
}}
"""


LOSS = "loss = cross_entropy(z, label)\n    "
MLP = """
model mlp(batch = 256, d = 6, heads = 12) {
    input x : f32[batch, d]
    input label : i64[batch]
    param w1 : f32[d, 4]
    param b1 : f32[4]
    param w2 : f32[4, heads]
    u = matmul(x, w1)
    a = add(u, b1)
    h = relu(a)
    z = matmul(h, w2)
    loss = cross_entropy(z, label)
    train loss with adam(lr = 0.001)
}
"""
LAYERS = """
model mlp(batch = 8, d = 6, heads = 12, layers = 12) {
    input given : f32[batch, d]
    param vocab : f32[d, heads]
    x = tanh(given)
    repeat layer in layers {
        param w : f32[d, heads]
        param v : f32[heads, d]
        q = matmul(x, w)
        x = matmul(q, v)
    }
    loss = mean(matmul(x, vocab), dims = [0, 1])
    train loss with sgd(lr = 0.001)
}
"""
LOADS = "x@R, label@R = input()\n    w1@R, b1@R, w2@R = param()\n    "


def program(before: str = "", inside: str = HERE, lab: str = cluster(), of: str = MLP, end: str = "...") -> str:
    """A sketch over four devices, with lines before what is shown."""
    lines = before.replace("; ", "\n    ")
    return f"{of}{lab}program p for mlp on lab {{\n    {lines}\n    {inside}\n    {end}\n}}\n"


def loaded(before: str = "", inside: str = HERE) -> str:
    return program(LOADS + before, inside)


def complete(declared: str, computed: str, before: str, inside: str = HERE) -> str:
    """A model that answers with the last of what it computes, and a program for it without holes."""
    rows = [line.replace("; ", "\n    ") for line in (declared, computed, before)]
    answer = rows[1].rpartition("\n")[2].split()[0]
    return f"""
model m(batch = 8, d = 6) {{
    {rows[0]}
    {rows[1]}
    output {answer}
}}
program p for m {{
    shares batch = [4, 4]
    forward {{
    {rows[2]}
    {inside}
    }}
}}
"""


TO_A = "u@R = matmul(x@R, w1@R); a@R = add(u@R, b1@R)"
# Where the examples of a code would stand. `ELIDED` is what their … stands for.
ONE = MLP.replace("w1", "w").replace("b1", "b")
TO_GRADIENT = "x@R = input(); w@R = param(); w.m@R, w.v@R = state(); w.grad@R = matmul_tn(x@R, u.grad@R)"
PLACES: dict[str, str] = {
    "HAP101": model(),
    "HAP102": trained(f"{LOSS}train loss with adam({HERE})"),
    "HAP103": program(
        LOADS, of=MLP.replace("u = matmul(x, w1)", "u = relu(x)\n    y = matmul(u, w1)").replace("add(u", "add(y")
    ),
    "HAP105": model("a = tanh(b)\n    " + HERE),
    "HAP106": f"op sum_of(a[*i], b[*i]) -> y[*i] {{\n    linear (a, b)\n    {HERE}\n}}\n",
    "HAP107": model(),
    "HAP108": loaded(TO_A + "; h@R = relu(a@R)").replace("h@R = relu(a@R)\n", "a@S(0) = slice(a@R)\n"),
    "HAP109": model(),
    "HAP110": cluster(f"node a100 = 4 * d {LINK}\n    {HERE} {LINK}"),
    "HAP111": model(f"frozen big : {HERE}"),
    "HAP112": f"{HERE}\n",
    "HAP113": loaded(TO_A),
    "HAP114": HERE + "\n" + cluster(),
    "HAP130": f"{HERE}\n",
    "HAP132": f"{HERE}\n",
    "HAP201": model("a = tanh(b)\n    " + HERE),
    "HAP202": model(),
    "HAP203": model(),
    "HAP204": model(),
    "HAP205": model(parameters="batch = 8, d = 10, heads = 2"),
    "HAP206": MLP + HERE,
    "HAP207": HERE + "\n" + cluster() + "program p for mlp on lab {\n    ...\n}\n",
    "HAP208": f"model m(batch = 8) {{\n    input x : f32[batch, 6]\n    input label : i64[batch]\n    param w : f32[6, 4]\n    {HERE}\n    train loss with sgd()\n}}\n",
    "HAP209": f"def f(x) {{\n    {HERE}\n}}\n" + model("y = f(x)"),
    "HAP210": f"model m(batch = 8, d = 6) {{\n    {HERE}\n    y = relu(x)\n    output y\n}}\n",
    "HAP211": f"model m(batch = 8, d = 6) {{\n    {HERE}\n    y = relu(x)\n    output y\n}}\n",
    "HAP212": model(),
    "HAP213": model(),
    "HAP214": model("a = tanh(b)\n    " + HERE),
    "HAP215": trained(
        f"loss = cross_entropy(z, label)\n    a = mean(z, dims = [0, 1])\n    b = scale(a, by = 2)\n    {HERE}"
    ),
    "HAP216": trained(),
    "HAP217": trained(LOSS + HERE),
    "HAP218": trained(LOSS + HERE),
    "HAP219": model().replace("input b", "input c"),
    "HAP220": model("a = tanh(b)\n    " + HERE),
    "HAP221": model("a = tanh(b)\n    " + HERE),
    "HAP222": trained(LOSS + HERE),
    "HAP223": model("y = tanh(x)\n    " + HERE),
    "HAP224": model(HERE, "def block(x) {\n    y = relu(x)\n    return y\n}").replace("input b", "input c"),
    "HAP225": HERE + "\n" + model("y = f(x)"),
    "HAP226": HERE + "\n" + model("y = f(x)"),
    "HAP227": model("frozen w : f32[d, 4]\n    " + HERE),
    "HAP228": HERE + "\n" + trained("loss = cross_entropy(double(z), label)\n    train loss with sgd()"),
    "HAP229": trained(f"{HERE}\n    {LOSS}train loss with sgd()"),
    "HAP230": HERE + "\n",
    "HAP231": trained(f"{LOSS}train loss with adamw()\n    {HERE}"),
    "HAP232": trained(LOSS + HERE),
    "HAP233": trained(LOSS + HERE),
    "HAP234": trained(f"{HERE}\n    {LOSS}train loss with sgd()"),
    "HAP235": trained(
        f"{HERE}\n    zz = mean(cast(w, to = f32), dims = 0)\n    loss = add(cross_entropy(z, label), zz)\n    train loss with sgd()"
    ),
    "HAP236": HERE + "\n",
    "HAP242": MLP + HERE,
    "HAP301": model("frozen b1 : f32[d]\n    " + HERE),
    "HAP302": model("frozen w : f32[d, 4]\n    " + HERE),
    "HAP303": model(parameters="batch = 8, d = 24, heads = 2"),
    "HAP304": model(parameters="batch = 8, d = 6, heads = 2"),
    "HAP305": model("frozen half : bf16[4]\n    frozen full : f32[4]\n    frozen ids : i64[4]\n    " + HERE),
    "HAP306": model(),
    "HAP307": model(),
    "HAP308": model("frozen a : f32[4, d]\n    " + HERE).replace("input b : f32[batch, d]", "frozen b : f32[d, 4]"),
    "HAP310": HERE + "\n",
    "HAP311": HERE + "\n",
    "HAP312": HERE + "\n",
    "HAP313": HERE + "\n",
    "HAP314": HERE + "\n",
    "HAP315": HERE + "\n",
    "HAP316": HERE + "\n",
    "HAP318": HERE + "\n",
    "HAP319": f'op doubled(x[*i], scale[]) -> y[*i] {{\n    {HERE}\n    torch "torch.mul"\n}}\n'
    + model("frozen one : f32[]\n    y = doubled(x, one)"),
    "HAP401": HERE + "\n",
    "HAP402": cluster(f"node host = 4 * d {LINK}\n    {HERE}"),
    "HAP404": cluster(device=HERE),
    "HAP407": cluster(device=DEVICE.replace("compute = 14 TFLOP/s", HERE)),
    "HAP408": cluster(device=DEVICE.replace("compute = 14 TFLOP/s", HERE)),
    "HAP411": cluster(HERE),
    "HAP413": cluster(f"node big = 2 * d {LINK}\n    node small = 2 * d {LINK}\n    {HERE}"),
    "HAP414": cluster(f"node host = 4 * d {LINK}\n    {HERE}"),
    "HAP415": cluster(f"node host = 4 * v100 {LINK}\n    {HERE}", DEVICE.replace("device d", "device v100")),
    "HAP417": HERE + "\ndevice b = a { launch = 1 us }\n",
    "HAP418": cluster(device=DEVICE.replace("memory = 16 GiB", HERE)),
    "HAP419": cluster(HERE),
    "HAP427": cluster(device=DEVICE.replace(" }", f", {HERE} }}")),
    "HAP490": cluster(f"node host = 4 * d over {{ {HERE}, latency = 10 us }}"),
    "HAP491": cluster(f"node host = 4 * d over {{ {HERE}, latency = 10 us }}"),
    "HAP424": MLP + cluster() + HERE,
    "HAP501": MLP + cluster() + HERE,
    "HAP502": program(lab=cluster(f"node host = 8 * d {LINK}")),
    "HAP503": MLP
    + cluster(f"node host = 2 * d {LINK}")
    + f"program p for mlp(batch = 4) on lab {{\n    {HERE}\n    ...\n}}\n",
    "HAP504": program(),
    "HAP505": program(lab=cluster(f"node host = 3 * d {LINK}")),
    "HAP506": program(lab=cluster(f"node host = 2 * d {LINK}")),
    "HAP507": MLP
    + cluster(f"node host = 2 * d {LINK}")
    + f"program p for mlp(batch = 4) on lab {{\n    {HERE}\n    ...\n}}\n",
    "HAP508": MLP
    + cluster()
    + f"program p for mlp(batch = 8) on lab {{\n    mesh nodes = 2, devices = 2\n    {HERE}\n    ...\n}}\n",
    "HAP510": loaded(TO_A),
    "HAP511": program(
        of=LAYERS.replace(
            "q = matmul(x, w)", 'param wq : f32[d, d]\n        n = tanh(x)\n        q = einsum("ij,jk->ik", n, wq)'
        ).replace("(q, v)", "(matmul(q, w), v)")
    ),
    "HAP512": program(of=LAYERS),
    "HAP513": program(of=LAYERS),
    "HAP514": program(),
    "HAP515": program(),
    "HAP517": MLP
    + cluster(f"node host = 2 * d {LINK}")
    + f"program p for mlp(batch = 4) on lab {{\n    {HERE}\n    ...\n}}\n",
    "HAP518": program(
        of=MLP.replace("u = matmul", "microbatch 4 {\n    u = matmul").replace("label)\n", "label)\n    }\n")
    ),
    "HAP520": loaded(TO_A, f"{HERE} = relu(a@S(0))"),
    "HAP521": program("", f"{HERE} = param()"),
    "HAP523": MLP
    + cluster()
    + f"program p for mlp(batch = 8) on lab {{\n    mesh nodes = 2, devices = 2\n    {HERE}\n    x@(S(0), S(0)) = input()\n    ...\n}}\n",
    "HAP524": loaded(TO_A + "; h@S(0) = relu(a@S(0))").replace(
        "a@R = add(u@R, b1@R)", "a@R = add(u@R, b1@R)\n    a@S(0) = slice(a@R)"
    ),
    "HAP525": program(
        of=LAYERS.replace("heads = 12", "heads = 12, vocab = 12")
        .replace("vocab : f32[d, heads]", "head : f32[d, vocab]")
        .replace("(x, vocab)", "(x, head)"),
        lab=cluster(f"node host = 2 * d {LINK}"),
    ),
    "HAP530": loaded(TO_A),
    "HAP532": loaded(),
    "HAP533": loaded("u@P = partial(u@R)"),
    "HAP536": loaded(),
    "HAP540": loaded(TO_A),
    "HAP541": loaded(TO_A),
    "HAP542": loaded(TO_A),
    "HAP543": loaded(TO_A),
    "HAP550": program(),
    "HAP551": program(),
    "HAP522": program(
        of=MLP.replace("param b1 : f32[4]", "param row : f32[1, 4]\n    b1 = sum(row, dims = 0)"),
        inside=f"{HERE} = param()",
    ),
    "HAP531": program(TO_GRADIENT, of=ONE),
    "HAP534": loaded(TO_A + "; h@R = relu(a@R); h@S(1) = slice(h@R); w2@S(0) = slice(w2@R)"),
    "HAP535": loaded("", "a.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))\n    " + HERE),
    "HAP537": program(
        of=LAYERS,
        lab=cluster(f"node host = 2 * d {LINK}"),
        inside=f"{HERE}\n    given@S(0) = input()\n    layer.0.x@S(0) = tanh(given@S(0))",
    ),
    "HAP544": program(
        "mesh nodes = 2, devices = 2; shares batch = [[64, 64], [64, 64]]; h@(S(0), S(0)) = relu(a@(S(0), S(0)))"
    ),
    "HAP545": program("x@S(0) = input(); w.grad@P = matmul_tn(x@S(0), u.grad@S(0))", of=ONE),
    "HAP552": program(of=ONE),
    "HAP560": complete(
        "input a : f32[batch, d]; frozen w : f32[d, 4]",
        "h = relu(a); z = matmul(h, w)",
        "a@R = input(); w@R = param(); h@R = relu(a@R)",
    ),
    "HAP561": complete(
        "input u : f32[batch, d]; frozen b : f32[d]", "a = add(u, b); h = relu(a)", "u@R = input(); b@R = param()"
    ),
    "HAP562": complete(
        "input h : f32[batch, d]; input label : i64[batch]; frozen w : f32[d, 4]",
        "z = matmul(h, w); loss = cross_entropy(z, label)",
        "h@R, label@R = input(); w@S(1) = param()",
    ),
    "HAP583": MLP + HERE,
}
SHARED = "shares batch = [32, 32]\n    ..."
ANSWER = "\n    input given : f32[batch, 4]\n    y = relu(given)\n    output y"
# What the … of an example stands for where it isn't lines of a sketch.
ELIDED: dict[str, str] = {
    "HAP114": "input x : f32[4]; y = relu(x); output y",
    "HAP132": "input x : f32[4]; y = relu(x); output y",
    "HAP206": SHARED,
    "HAP207": ANSWER,
    "HAP223": "y = tanh(y)",
    "HAP236": "; y = relu(x); output y",
    "HAP242": SHARED.replace("32", "128"),
    "HAP402": "bandwidth = 12 GB/s",
    "HAP413": "bandwidth = 12 GB/s",
    "HAP512": "",
    "HAP513": "",
    "HAP583": SHARED.replace("32", "256"),
}
# What is said of a right example as well: a declaration alone names no kernel, and a made-up fingerprint is nobody's.
UNTRIED = {"HAP700", "HAP731"}
BESIDES: dict[str, set[str]] = {
    **dict.fromkeys(
        ("HAP228", "HAP310", "HAP311", "HAP312", "HAP313", "HAP314", "HAP315", "HAP316", "HAP318"), UNTRIED
    ),
    "HAP515": {"HAP516"},
}
# Examples that are command lines, or Python, or no program without everything around them.
ELSEWHERE = {
    "HAP426", "HAP429", "HAP563", "HAP572", "HAP700", "HAP703", "HAP721", "HAP730", "HAP732", "HAP745", "HAP750", "HAP756", "HAP757", "HAP761", "HAP763",
    "HAP814", "HAP821", "HAP822", "HAP823", "HAP824", "HAP851", "HAP870", "HAP871", "HAP872", "HAP873", "HAP875", "HAP876", "HAP878",
}  # fmt: skip


def codes(text: str, folder: Path) -> set[str]:
    """What `hapdsl check` says of a file with this text."""
    path = folder / "example.hap"
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "mlp.hap").write_text(MLP)  # what an example imports
    path.write_text(text)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main(["check", str(path), "--json"])
    return {d["code"] for d in json.loads(said.getvalue())["diagnostics"]}


@pytest.mark.parametrize("code", PLACES)
def test_examples(code: str, tmp_path: Path) -> None:
    bad, good = (
        PLACES[code].replace(HERE, example.replace("…", ELIDED.get(code, "...")))
        for example in (CODES[code].example_bad, CODES[code].example_good)
    )
    assert code in codes(bad, tmp_path)
    assert codes(good, tmp_path) - BESIDES.get(code, set()) == set()


def test_all_examples_that_are_text_are_tried() -> None:
    assert {code for code, e in CODES.items() if e.example_bad} - set(PLACES) == ELSEWHERE


@pytest.mark.parametrize("code", CODES)
def test_options_are_set_as_code(code: str) -> None:
    for words in (CODES[code].title, CODES[code].text):
        assert not re.search(r"(?<![\w-])--?[a-z]", " ".join(words.split("`")[::2])), words
