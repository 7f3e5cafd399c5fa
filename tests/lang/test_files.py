"""Files that can't be read, and files that import each other."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.files import check_writable, keep_tables, write_file
from hapdsl.lang.load import load, load_text
from hapdsl.lang.parse import LARGEST_FILE, parse
from hapdsl.lang.print import to_text
from hapdsl.lang.resources import grammar_file, programs_folder, theory_folder

MODEL = "model {} {{\n    x = f(y)\n}}\n"


def found(call):
    """(code, line, column) of each diagnostic, after seconds of a processor that must be few."""
    start = time.process_time()
    with pytest.raises(HapError) as caught:
        call()
    assert time.process_time() - start < 2
    assert caught.value.status == 2
    return [(d.code, d.span.line, d.span.column) for d in caught.value.diagnostics]


def test_missing(tmp_path):
    (tmp_path / "model.hap").write_text(MODEL.format("m"))
    with pytest.raises(HapError) as caught:
        load(tmp_path / "modle.hap")
    assert caught.value.diagnostics[0].code == "HAP120"
    assert caught.value.diagnostics[0].help == "did you mean 'model.hap'?"
    assert found(lambda: load(tmp_path / "no" / "such.hap")) == [("HAP120", 1, 1)]
    assert found(lambda: load("a\0b")) == [("HAP121", 1, 1)]
    assert found(lambda: load("x" * 5000)) == [("HAP121", 1, 1)]


def test_folder(tmp_path):
    assert found(lambda: load(tmp_path)) == [("HAP121", 1, 1)]


def test_not_allowed(tmp_path):
    path = tmp_path / "m.hap"
    path.write_text(MODEL.format("m"))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything
        assert load(path).main.tree.items[0].name == "m"
    else:
        assert found(lambda: load(path)) == [("HAP121", 1, 1)]


def test_not_utf8(tmp_path):
    path = tmp_path / "latin.hap"
    path.write_bytes("model m {\n    # é".encode() + b"\xe9 \n}\n")
    assert found(lambda: load(path)) == [("HAP122", 2, 8)]
    path.write_bytes("model m { }\n".encode("utf-16"))
    assert found(lambda: load(path)) == [("HAP122", 1, 1)]
    path.write_bytes(b"\xef\xbb\xbf" + "model m {\n    # é".encode() + b"\xe9 \n}\n")
    assert found(lambda: load(path)) == [("HAP122", 2, 8)], "a byte order mark is no part of the text"
    with pytest.raises(HapError, match="byte 0xe9"):
        load(path)
    path.write_bytes(b"model m {\0 }\n")
    assert found(lambda: load(path)) == [("HAP125", 1, 10)]
    path.write_bytes(b"\xef\xbb\xbfmodel m { }\r\n")
    assert load(path).main.tree.items[0].span.column == 1


def test_empty(tmp_path):
    path = tmp_path / "empty.hap"
    for text in ("", " \n\t\n", "# only a comment\n"):
        path.write_text(text)
        assert found(lambda: load(path)) == [("HAP124", 1, 1)]
        assert found(lambda: load(path)) == [("HAP124", 1, 1)]


def test_ten_megabytes(tmp_path):
    path = tmp_path / "large.hap"
    path.write_text("# a long line of comment and nothing else\n" * 250_000)
    assert path.stat().st_size > 10_000_000
    assert found(lambda: load(path)) == [("HAP123", 1, 1)]


def test_the_limit_holds_for_what_has_no_size():
    """Devices and pipes say that they are empty."""
    assert found(lambda: load("/dev/zero")) == [("HAP123", 1, 1)]


# -- writing -------------------------------------------------------------------


def test_what_cannot_be_written_is_told_before_the_work(tmp_path):
    source = tmp_path / "m.hap"
    source.write_text(MODEL.format("m"))
    (tmp_path / "again.hap").symlink_to(source)
    (tmp_path / "loop.hap").symlink_to("loop.hap")
    for output, words in (
        (tmp_path, "it is a folder"),
        (source, "the result is made from it"),
        (tmp_path / "again.hap", "the result is made from it"),
        (tmp_path / "no" / "such.hap", "there is no folder"),
        (tmp_path / ("x" * 300), "name too long"),
        ("a\0b", "null"),
    ):
        with pytest.raises(HapError, match=words) as caught:
            check_writable(str(output), [source])
        assert [d.code for d in caught.value.diagnostics] == ["HAP852"]
    for output in ("new.hap", "loop.hap"):
        check_writable(str(tmp_path / output), [source])


def test_a_written_file_has_the_mode_that_it_had_or_that_new_files_get(tmp_path):
    kept, new, long = tmp_path / "kept", tmp_path / "new", tmp_path / ("x" * 255)
    kept.write_text("old")
    kept.chmod(0o640)
    plain = tmp_path / "plain"
    plain.touch()
    for path in (kept, new, long):
        write_file(path, "text")
        assert path.read_text() == "text"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 4, "nothing else is left"


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(HapError, match="No space left"):
        write_file(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_tables_go_along_where_there_are_any(tmp_path, monkeypatch):
    without, source, output = tmp_path / ("y" * 255), tmp_path / "m.hap", tmp_path / "plan.hap"
    (tmp_path / "m.hap.npz").write_bytes(b"numbers")
    assert keep_tables([without], output) is None and not (tmp_path / "plan.hap.npz").exists()
    assert keep_tables([without, source], output) == tmp_path / "plan.hap.npz"
    assert (tmp_path / "plan.hap.npz").read_bytes() == b"numbers"

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    assert found(lambda: keep_tables([source], tmp_path / "none" / "plan.hap")) == [("HAP852", 0, 0)]
    monkeypatch.setattr(Path, "read_bytes", refused)
    assert found(lambda: keep_tables([source], output)) == [("HAP852", 0, 0)]


def test_as_large_as_allowed_and_wrong(tmp_path):
    path = tmp_path / "large.hap"
    path.write_text("(" * (LARGEST_FILE - 1))
    assert found(lambda: load(path))[0] == ("HAP101", 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "model m {\n    x = " + "(" * 10_000 + "1" + ")" * 10_000 + "\n}\n",
        "model m {\n    x = " + "[" * 10_000 + "\n}\n",
        "model m {\n    x = " + "f(" * 10_000 + "1" + ")" * 10_000 + "\n}\n",
        "model m {\n    x = " + "-" * 10_000 + "y\n}\n",
        "model m {\n    x = " + "1 + " * 10_000 + "1\n}\n",
        "model m {\n" + "repeat i in 2 {\n" * 10_000 + "}" * 10_001 + "\n",
        "program p for m {\n" + "forward {\n" * 10_000 + "\n",
        "cluster c { device d { " + "a = { " * 10_000 + "}" * 10_002 + "\n",
        "model m {\n    x = " + ("f(" + "1 + " * 30) * 30 + "1" + ")" * 30 + "\n}\n",
    ],
    ids=["parentheses", "open brackets", "calls", "minus", "sum", "repeats", "sections", "settings", "mixed"],
)
def test_deep_nesting(text):
    codes = found(lambda: parse(text))
    assert codes[0][0] == "HAP104"


def test_as_deep_as_allowed_can_be_printed_and_compared():
    text = (
        "model m {\n"
        + "repeat i in 2 {\n" * 39
        + "x = "
        + "-f(" * 30
        + "1 + " * 30
        + "y"
        + ")" * 30
        + "\n"
        + "}\n" * 40
    )
    tree = parse(text)
    assert parse(to_text(tree)) == tree


# -- imports -------------------------------------------------------------------


def test_a_bundle_holds_what_was_imported(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.hap").write_text('import "sub/a.hap"\nimport "b.hap"\nprogram p for m { ... }\n')
    (tmp_path / "sub" / "a.hap").write_text('import "../b.hap"\n' + MODEL.format("m"))
    (tmp_path / "b.hap").write_text("def d() { return 1 }\nop o() -> [] { flops 1 }\ncluster c { }\n")
    bundle = load(tmp_path / "main.hap")
    assert (list(bundle.models), list(bundle.programs), list(bundle.defs)) == (["m"], ["p"], ["d"])
    assert (list(bundle.ops), list(bundle.clusters)) == (["o"], ["c"])
    assert [s.path.name for s in bundle.sources] == ["b.hap", "a.hap", "main.hap"]
    assert bundle.main.path.name == "main.hap"
    for block in (bundle.models["m"], bundle.defs["d"], bundle.programs["p"]):
        line = bundle.files[block.span.file].split("\n")[block.span.line - 1]
        assert line[block.span.column - 1 :].startswith(type(block).__name__.lower())


def test_standard_files_are_found_wherever_one_is(tmp_path, monkeypatch):
    name = next(iter(sorted(programs_folder().rglob("*.hap"))))
    (tmp_path / "main.hap").write_text(f'import "std/{name.name}"\n')
    monkeypatch.chdir(tmp_path)
    bundle = load("main.hap")
    assert bundle.sources[0].path == name
    assert bundle.sources[0].text == name.read_text(encoding="utf-8")


def test_missing_import(tmp_path):
    path = tmp_path / "main.hap"
    (tmp_path / "parts.hap").write_text(MODEL.format("m"))
    path.write_text('# one\nimport "part.hap"\n  import "std/nothing.hap"\nmodel m { }\n')
    assert found(lambda: load(path)) == [("HAP130", 2, 1), ("HAP130", 3, 3)]
    with pytest.raises(HapError) as caught:
        load(path)
    assert caught.value.diagnostics[0].help == "did you mean 'parts.hap'?"


def test_odd_import_paths(tmp_path):
    path = tmp_path / "main.hap"
    for name in (
        "",
        ".",
        "..",
        "a\\tb",
        "x" * 5000,
        "std/",
        "std/../../hapdsl",
        "main.hap/x",
    ):
        path.write_text(f'import "{name}"\nmodel m {{ }}\n')
        codes = found(lambda: load(path))
        assert len(codes) == 1 and codes[0][0] in ("HAP121", "HAP130"), name
        assert codes[0][1:] == (1, 1)


def test_import_cycle(tmp_path):
    for a, b in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{a}.hap").write_text(f'import "{b}.hap"\n' + MODEL.format(a))
    with pytest.raises(HapError) as caught:
        load(tmp_path / "a.hap")
    (d,) = caught.value.diagnostics
    assert (d.code, d.span.line, os.path.basename(d.span.file)) == ("HAP131", 1, "c.hap")
    assert "a.hap -> b.hap -> c.hap -> a.hap" in d.message
    (tmp_path / "self.hap").write_text('import "self.hap"\n')
    assert found(lambda: load(tmp_path / "self.hap")) == [("HAP131", 1, 1)]


def test_two_blocks_of_one_name(tmp_path):
    path = tmp_path / "main.hap"
    path.write_text(MODEL.format("m") + "cluster m { }\n" + MODEL.format("m"))
    assert found(lambda: load(path)) == [("HAP132", 5, 1)]
    path.write_text('import "other.hap"\n' + MODEL.format("m"))
    (tmp_path / "other.hap").write_text(MODEL.format("m"))
    assert found(lambda: load(path)) == [("HAP132", 2, 1)]


def test_errors_of_all_files_come_together(tmp_path):
    (tmp_path / "main.hap").write_text('import "a.hap"\nimport "b.hap"\nmodel m { }\n')
    (tmp_path / "a.hap").write_text("model a { x = }\n")
    (tmp_path / "b.hap").write_bytes(b"\xff")
    with pytest.raises(HapError) as caught:
        load(tmp_path / "main.hap")
    shown = [(d.code, os.path.basename(d.span.file), d.span.line, d.span.column) for d in caught.value.diagnostics]
    assert shown == [("HAP101", "a.hap", 1, 15), ("HAP122", "b.hap", 1, 1)]


def test_an_unsaved_text_imports_from_its_folder(tmp_path):
    (tmp_path / "b.hap").write_text(MODEL.format("m"))
    bundle = load_text('import "b.hap"\nprogram p for m { ... }\n', "main.hap", tmp_path)
    assert list(bundle.models) == ["m"]
    assert bundle.main.name == "main.hap"


def test_what_ships_is_where_the_code_looks():
    assert grammar_file().is_file()
    assert (programs_folder() / "models").is_dir()
    assert list(theory_folder().glob("*.hap"))


@pytest.mark.parametrize("piece", ["(", "}", "{", '"', "x\n", "    x = f(y\n", "#\n", "= ", "model m {\n", "a.b "])
def test_a_large_file_full_of_errors(tmp_path, piece):
    path = tmp_path / "large.hap"
    path.write_text("model m {\n" + piece * ((LARGEST_FILE - 10) // len(piece)))
    assert found(lambda: load(path))
