"""What the documentation shows is true: its texts parse and check, its links lead somewhere, its verbs exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import summary
from benchmarks.pages import filled, marks
from hapdsl.cli import VERBS
from hapdsl.lang import nodes
from hapdsl.lang.codes import CODES
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench
from tests.texts import REPOSITORY

PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((REPOSITORY / "docs").glob("*.md"))  # fmt: skip
LANGUAGE = REPOSITORY / "docs" / "language.md"


def texts(page: Path) -> list[str]:
    """The indented blocks of a page that are whole blocks of the language."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = ["\n".join(line[4:] for line in text.strip("\n").split("\n")) + "\n" for text in found]
    return [b for b in blocks if re.match(r"(def|model|cluster|op) ", b)]


def test_the_language_page_shows_all_kinds() -> None:
    shown = "\n".join(texts(LANGUAGE))
    assert all(re.search(rf"^{kind} ", shown, re.MULTILINE) for kind in ("def", "model", "cluster", "op"))


@pytest.mark.parametrize("text", texts(LANGUAGE), ids=lambda t: t.split("(")[0].split(" {")[0])
def test_its_texts_check(text: str, tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "page.hap", text)
    assert bench.ops
    for name in bench.bundle.models:
        graph = bench.graph(name)
        assert graph.nodes
    for name in bench.bundle.clusters:
        assert len(bench.cluster(name)) > 1
    assert parse(to_text(bench.bundle.main.tree)) == bench.bundle.main.tree


# What a fragment of the page stands in, by how it begins; `{}` is where.
AROUND = {
    "import": "{}\nmodel m(n = 8) {\n input a : f32[n, 4]\n loss = sum(twice(a), [0, 1])\n output loss\n}",
    "train": "model m(n = 8, d = 4) {\n input x : f32[n, d]\n param head : f32[d, d]\n param out.bias, in.norm.w : f32[d]\n"
    " u = matmul(add(mul(x, in.norm.w), out.bias), head)\n loss = sum(u, [0, 1])\n{}\n}",
    "buffer": 'import "std/schedules.hap"\n'
    "model m(n = 8, d = 4) {\n input x : f32[n, d]\n param w : f32[d, d]\n u = matmul(x, w)\n loss = sum(u, [0, 1])\n{}\n}",
    "device": 'import "std/hardware.hap"\ncluster c {\n{}\n node host = 2 * v100 over { bandwidth = 1 GB/s, latency = 5 us }\n}',
    "node": 'import "std/hardware.hap"\ncluster c {\n{}\n}',
    "microbatch": "program p for m {\n{}\n}",
    "mesh": "program p for m {\n{}\n}",
    "program": "{}",
}
# Only parsed: parts of programs, with the rest left out.
PARTS = ("microbatch", "mesh", "program")


def fragments(page: Path) -> list[str]:
    """The page's other indented blocks: parts of blocks, and what stands before them."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = ["\n".join(line[4:] for line in text.strip("\n").split("\n")) + "\n" for text in found]
    return [b for b in blocks if b not in texts(page)]


@pytest.mark.parametrize("text", fragments(LANGUAGE), ids=lambda t: t.split()[0])
def test_its_fragments_stand_where_they_belong(text: str, tmp_path: Path) -> None:
    (tmp_path / "blocks.hap").write_text("def twice(x) { return scale(x, by = 2) }\n", encoding="utf-8")
    kind = text.split()[0]
    if kind == "import" and re.search("^cluster ", text, re.MULTILINE):
        whole = text
    else:
        whole = AROUND[kind].replace("{}", text.replace("…", ""))
    bench = Workbench(tmp_path / "page.hap", whole)
    tree = bench.bundle.main.tree
    assert parse(to_text(tree)) == tree
    if kind not in PARTS:
        (block,) = (item for item in tree.items if not isinstance(item, nodes.Import))
        assert bench.graph(block.name).nodes if isinstance(block, nodes.Model) else len(bench.cluster(block.name)) > 1


def test_what_it_says_of_names() -> None:
    bench = Workbench("page.hap", texts(LANGUAGE)[0])
    graph = bench.graph("net", {"layers": 4})
    assert {"head", "layer.3.block.w1", "w.grad"} & set(graph.tensors) == {"head", "layer.3.block.w1"}
    assert {"layer.3.x", "loss.grad", "head.new", "head.m"} <= set(graph.tensors)
    assert {"batch", "d", "ffn", "classes"} <= set(graph.classes)
    assert graph.tensors["head"].init == ("normal", {"std": 0.02})
    assert "scale.new" not in graph.tensors


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_codes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
    for code in re.findall(r"HAP\d{3}", text):
        assert code in CODES, code


def figures(*more: str) -> str:
    """What `make figures` runs, part by part, and `more` targets."""
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"^FIGURES := (.*)$", text, re.MULTILINE)
    assert listed is not None
    recipes = dict(re.findall(r"^(\w+):[^\n]*\n((?:\t.*\n)*)", text, re.MULTILINE))
    return "".join(recipes[part] for part in (*listed[1].split(), *more))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_made_table_has_its_command_in_the_makefile(page: Path) -> None:
    """In `make figures`; that of the coverage, which takes an hour of tests, in `make coverage`."""
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"^<!-- ([\w.]+): begin -->$", text, re.MULTILINE):
        assert f"<!-- {module}: end -->" in text, module
        assert re.search(rf"python -m {re.escape(module)}\b", figures("coverage")), module
    if re.search(r"^    \$ hapdsl ", text, re.MULTILINE) and page.name in ("README.md", "tutorial.md"):
        assert str(page.relative_to(REPOSITORY)) in figures()


def test_the_readme_table_is_of_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = {"model": "mlp", "best": "ddp_even", "speedup": 1.6, "interval": [1.52, 1.71], "rate": 2.5e9}
    (tmp_path / "emulate.jsonl").write_text(json.dumps(rival) + "\n", encoding="utf-8")
    (tmp_path / "soak.json").write_text(json.dumps({"rounds": 7, "wrong": ["one"]}), encoding="utf-8")
    monkeypatch.setattr(summary, "RESULTS", tmp_path)
    old = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    made = filled(old, "summary", summary.table())
    (told,) = [part for part in made.split("\n") if "make emulate" in part]
    assert "1.60 x (1.52 to 1.71)" in told and ", 2.5 Gbit/s between them" in told
    assert re.search(r"^\| 7 runs .* \| 1 \| `make soak` \|$", made, re.MULTILINE)
    begin, end = marks("summary")
    assert made.partition(begin)[0] == old.partition(begin)[0] and made.partition(end)[2] == old.partition(end)[2]
    commands = set(re.findall(r"`make (\w+)` \|$", made, re.MULTILINE))
    targets = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands <= set(targets), commands


def test_every_picture_is_shown_and_made_by_make_figures() -> None:
    made = "".join(
        (REPOSITORY / script).read_text(encoding="utf-8") for script in re.findall(r"docs/\w+\.py", figures())
    )
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (REPOSITORY / "docs" / "pictures").iterdir():
        assert f'"{picture.stem.removeprefix("explore_")}"' in made or picture.name in made, picture.name
        assert f"pictures/{picture.name})" in shown, picture.name


def test_the_architecture_names_modules_that_exist() -> None:
    """`room.module`, `hapdsl.module` and files; what stands in a room alone is named without it."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = REPOSITORY / "hapdsl"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    named = [name.removeprefix("hapdsl.") for name in re.findall(r"`(\w+\.\w+|hapdsl\.\w+\.\w+)`", text)]
    modules = [name.split(".") for name in named if name.split(".")[0] in rooms or "." not in name]
    assert len(modules) > 100
    for parts in modules:
        path = package.joinpath(*parts)
        assert path.is_dir() or path.with_suffix(".py").is_file(), ".".join(parts)
    for name in re.findall(r"`((?:\w+/)+\w+\.\w+)`", text):
        assert (REPOSITORY / name).exists() or (package / name).exists(), name


def test_the_readme_names_every_verb() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"| `{verb} " in text or f"| `{verb}`" in text
    for verb in re.findall(r"^    \$ hapdsl (\w+)", text, re.MULTILINE):
        assert verb in VERBS
