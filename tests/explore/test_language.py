"""Editor support: the lexer, what the language server knows, and the server itself over its pipes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient
from pygls.workspace import PositionCodec
from pygments.token import Comment, Keyword, Name

from hapdsl.cli import cli
from hapdsl.commands.lsp import command
from hapdsl.explore.highlight import KEYWORDS
from hapdsl.explore.language import Language, apply
from hapdsl.explore.lexer import HapLexer
from hapdsl.explore.lsp import Columns
from hapdsl.explore.workers import environment
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.lang.resources import programs_folder
from hapdsl.workbench import Workbench
from tests.texts import REPOSITORY

from .conftest import FILES

TEXT = (FILES / "small.hap").read_text()


@pytest.fixture
def language() -> Language:
    found = Language()
    found.open("small.hap", TEXT)
    return found


def at(words: str, text: str = TEXT) -> tuple[int, int]:
    """Line and column of some words."""
    before = text[: text.index(words)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def test_the_lexer_loses_nothing() -> None:
    for file in (*sorted(programs_folder().rglob("*.hap")), FILES / "small.hap"):
        text = file.read_text()
        assert "".join(value for _, value in HapLexer(ensurenl=False, stripnl=False).get_tokens(text)) == text
    assert (Comment.Single, "# a\x0cb\u2028c = 1") in HapLexer().get_tokens("x\n# a\x0cb\u2028c = 1\n")
    tokens = list(HapLexer().get_tokens("model m { # [/x]\n    z@S(0) = all_gather(z@R)\n}"))
    assert (Keyword, "model") in tokens and (Comment.Single, "# [/x]") in tokens
    assert (Name.Function.Magic, "all_gather") in tokens and (Keyword.Constant, "S(0)") in tokens


def test_the_lexer_is_found_by_its_name() -> None:
    """By Pygments, once installed; this environment may be older than the entry point."""
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    (found,) = EntryPoints(EntryPoint("hap", at, "pygments.lexers") for at in points["pygments.lexers"].values())
    assert found.load() is HapLexer and {"hap"} <= set(HapLexer.aliases) and "*.hap" in HapLexer.filenames


def test_every_keyword_of_the_grammar_has_a_colour_everywhere() -> None:
    words = set(re.findall(r'"([a-z]+)"', (REPOSITORY / "grammar" / "hap.lark").read_text()))
    assert len(words) > 40 and words <= KEYWORDS
    folder = REPOSITORY / "docs" / "editors" / "vscode"
    rules = json.loads((folder / "hap.tmLanguage.json").read_text())["patterns"]
    for word in words:
        assert any(rule["name"].startswith("keyword.") and re.search(rule["match"], word) for rule in rules), word
    package = json.loads((folder / "package.json").read_text())["contributes"]
    for file in (package["grammars"][0]["path"], package["languages"][0]["configuration"]):
        json.loads((folder / file).read_text())


def test_the_folder_for_vs_code_is_an_extension() -> None:
    """What VS Code's page on the manifest asks for (code.visualstudio.com/api/references/extension-manifest, contribution-points), and that the
    command that the extension starts is a language server."""
    folder = REPOSITORY / "docs" / "editors" / "vscode"
    package = json.loads((folder / "package.json").read_text())
    assert re.fullmatch(r"[a-z0-9-]+", package["name"]) and re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
    assert package["publisher"] and (folder / package["main"]).is_file()
    least = tuple(map(int, re.fullmatch(r"\^(\d+)\.(\d+)\.\d+", package["engines"]["vscode"]).groups()))
    assert (
        least >= (1, 82) and package["activationEvents"] == []
    )  # since 1.74 a language that is contributed activates by itself
    points = package["contributes"]
    assert set(points) <= {"languages", "grammars", "configuration", "commands"}
    (spoken,), (grammar,) = points["languages"], points["grammars"]
    rules = json.loads((folder / grammar["path"]).read_text())
    assert grammar["language"] == spoken["id"] and grammar["scopeName"] == rules["scopeName"]
    assert all(rule["name"].endswith(".hap") for rule in rules["patterns"])
    manners = json.loads((folder / spoken["configuration"]).read_text())
    assert all(re.compile(rule) for rule in manners["indentationRules"].values())
    assert all(
        len(pair) == 2 for kind in ("brackets", "autoClosingPairs", "surroundingPairs") for pair in manners[kind]
    )
    (name, setting), *others = points["configuration"]["properties"].items()
    script = (folder / package["main"]).read_text()
    section, _, key = name.partition(".")
    assert (
        not others
        and f'getConfiguration("{section}").get("{key}")' in script
        and f'language: "{spoken["id"]}"' in script
    )
    program, verb = setting["default"]
    scripts = tomllib.loads((folder.parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert program in scripts and cli.get_command(click.Context(cli), verb) is command


def test_hover_tells_triple_and_shapes(language: Language) -> None:
    words = language.hover("small.hap", *at("z@S(0)       = matmul"))
    assert words is not None and "{h@S(0), w2@R} matmul {z@S(0)}" in words and "f32[256 batch, 10 classes]" in words
    assert language.hover("small.hap", *at("h = relu")) == "h: f32[256 batch, 1024 hidden], value"
    assert language.hover("small.hap", 1, 1) is None


def test_definitions_and_fixes(language: Language) -> None:
    line, column = at("relu(a@S(0))")
    assert language.definition("small.hap", line, column + 5) == at("a@S(0)       = add")
    language.open("small.hap", TEXT.replace("for mlp on box", "for mpl on box", 1))
    line, _ = at("program mixed")
    (action,) = language.actions("small.hap", line, line)
    assert action.title == "write mlp" and apply(language.documents["small.hap"].text, [action.edit]) == TEXT
    assert language.actions("small.hap", 1, 2) == []


@pytest.mark.parametrize(
    ("lost", "before"),
    [
        ("all_reduce(b1.grad@P)", "b1.new@R, b1.m.new@R"),  # HAP562: it is there in another placement
        ("w1@R         = all_gather(w1@S(1), method = grouped)", "u@S(0) "),
        ("x@S(0), label@S(0)   = input()", "u@S(0) "),  # HAP561: it isn't there at all
    ],
)
def test_a_line_that_is_missing_is_put_above_the_one_that_needs_it(language: Language, lost: str, before: str) -> None:
    text = "\n".join(row for row in TEXT.split("\n") if lost not in row)
    language.open("small.hap", text)
    line, _ = at(before, text)
    (action,) = language.actions("small.hap", line, line)
    mended = apply(text, [action.edit])
    added = mended.split("\n")[line - 1]
    assert action.title == f"put {added.strip()} above" and mended.split("\n")[line] == text.split("\n")[line - 1]
    language.open("small.hap", mended)
    left = {f.message for f in language.findings("small.hap")}
    assert action.finding.message not in left and ("input" in lost) == bool(left)


def test_it_is_put_above_a_statement_of_several_lines(language: Language) -> None:
    text = TEXT.replace("adam(b1@R, b1.grad@R,", "adam(b1@R,\n            b1.grad@R,", 1)
    text = "\n".join(row for row in text.split("\n") if "all_reduce(b1.grad@P)" not in row)
    language.open("small.hap", text)
    line, _ = at("b1.grad@R,", text)
    (action,) = language.actions("small.hap", line, line)
    language.open("small.hap", apply(text, [action.edit]))
    assert not language.findings("small.hap") and action.edit.span[0] == line - 1


def test_definitions_in_other_files(language: Language) -> None:
    path = programs_folder() / "plans" / "mlp_megatron.hap"
    text, model = path.read_text(), (programs_folder() / "models" / "mlp.hap").read_text()
    language.open(str(path), text)

    def target(words: str, shift: int = 0) -> tuple[str, str]:
        line, column = at(words, text)
        assert language.definition(str(path), line, column + shift) is None
        found = language.elsewhere(str(path), line, column + shift)
        assert found is not None
        return Path(found.file).name, Path(found.file).read_text().split("\n")[found.line - 1].strip()

    assert target('import "../models', 8) == ("mlp.hap", model.split("\n")[0])
    assert target("for mlp(", 5)[1].startswith("model mlp(")
    assert target("on digits", 4)[1].startswith("cluster digits")
    assert target("= relu(", 3)[1].startswith("op relu(")
    assert target("w1@S(1), b1@S(0), w2") == (
        "mlp.hap",
        next(row.strip() for row in model.split("\n") if "param w1" in row),
    )
    assert language.elsewhere(str(path), *at("shares")) is None


def test_renaming_keeps_what_the_text_means(language: Language) -> None:
    edits = language.rename("small.hap", *at("h = relu"), "hid")
    text = apply(TEXT, edits)
    assert (
        "hid = relu(a)" in text
        and "hid.grad@S(0)  = matmul_nt" in text
        and "z@S(1) = matmul(hid@R" in text
        and "hidden" in text
    )
    before, after = (Workbench("s.hap", t) for t in (TEXT, text))
    assert after.cost(after.program("mixed"))[2].sync_s == before.cost(before.program("mixed"))[2].sync_s
    assert "program mixed for net on box" in apply(TEXT, language.rename("small.hap", *at("mlp(batch"), "net"))
    for new, says in (("z", "can't be 'z'"), ("2x", "can't be a name"), ("a.b", "can't be a name")):
        with pytest.raises(ValueError, match=says):
            language.rename("small.hap", *at("h = relu"), new)


def test_renaming_leaves_strings_and_refuses_what_is_taken(language: Language) -> None:
    text = TEXT.replace("    u = matmul(x, w1)", '    u = einsum("bu,uh->bh", x, w1)  # u')
    language.open("small.hap", text)
    renamed = apply(text, language.rename("small.hap", *at("u = einsum", text), "v"))
    assert 'v = einsum("bu,uh->bh", x, w1)  # u' in renamed and "a = add(v, b1)" in renamed
    language.open("small.hap", text.replace("relu(a)", "relu(aa)"))  # with an error that stays
    assert len(language.rename("small.hap", *at("z = matmul", text), "y")) > 5
    with pytest.raises(ValueError, match="that name is taken"):
        language.rename("small.hap", *at("w2    :", text), "w1")
    language.open("small.hap", text + "model {")
    with pytest.raises(ValueError, match="readable"):
        language.rename("small.hap", *at("z = matmul", text), "y")


def test_a_server_ends_as_told() -> None:
    messages = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        {
            "id": 2,
            "method": "textDocument/hover",
            "params": {"textDocument": {"uri": "file:///no/such.hap"}, "position": {"line": 0, "character": 0}},
        },
        {"id": 3, "method": "shutdown", "params": None},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **m}).encode() for m in messages]
    given = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(b), b) for b in bodies)
    done = subprocess.run(
        [sys.executable, "-m", "hapdsl", "lsp"], input=given, capture_output=True, env=environment(), timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert b"can't be read" in done.stdout and b'"id": 3' in done.stdout


def test_a_server_answers_an_editor(tmp_path: Path) -> None:
    file = Path(shutil.copy(FILES / "small.hap", tmp_path / "small.hap"))
    uri = file.as_uri()

    async def work() -> None:
        client = LanguageClient("test", "1")
        heard: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: lsp.PublishDiagnosticsParams) -> None:
            heard.put_nowait(params)

        await client.start_io(sys.executable, "-m", "hapdsl", "lsp", env=environment())
        try:
            capabilities = (
                await client.initialize_async(lsp.InitializeParams(capabilities=lsp.ClientCapabilities()))
            ).capabilities
            client.initialized(lsp.InitializedParams())
            assert capabilities.position_encoding == lsp.PositionEncodingKind.Utf16
            broken = TEXT.replace("for mlp on box", "for mpl on box", 1).replace("\n", "\r\n")
            client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "hap", 1, broken)))
            found = (await heard.get()).diagnostics
            assert found[0].code == "HAP242" and "did you mean 'mlp'?" in found[0].message
            name = lsp.TextDocumentIdentifier(uri)
            (action,) = await client.text_document_code_action_async(
                lsp.CodeActionParams(name, found[0].range, lsp.CodeActionContext(found))
            )
            assert action.edit.changes[uri][0].new_text == "mlp"
            row = '    u = einsum("🎲", x, w11)'  # a letter of two code units before what is wrong
            astral = lsp.TextDocumentContentChangeWholeDocument(TEXT.replace("    u = matmul(x, w1)", row))
            client.text_document_did_change(
                lsp.DidChangeTextDocumentParams(lsp.VersionedTextDocumentIdentifier(2, uri), [astral])
            )
            found = (await heard.get()).diagnostics
            (action,) = await client.text_document_code_action_async(
                lsp.CodeActionParams(name, found[0].range, lsp.CodeActionContext(found))
            )
            for place in (found[0].range, action.edit.changes[uri][0].range):
                assert (
                    row.encode("utf-16-le")[2 * place.start.character : 2 * place.end.character].decode("utf-16-le")
                    == "w11"
                )
            messy = TEXT.replace("h = relu(a)", "h=relu( a )")
            changed = lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(3, uri), [lsp.TextDocumentContentChangeWholeDocument(messy)]
            )
            client.text_document_did_change(changed)
            assert not (await heard.get()).diagnostics
            line, column = at("z@S(0)       = matmul")
            place = lsp.Position(line - 1, column - 1)
            hover = await client.text_document_hover_async(lsp.HoverParams(name, place))
            assert "{h@S(0), w2@R} matmul {z@S(0)}" in hover.contents.value
            (edit,) = await client.text_document_formatting_async(
                lsp.DocumentFormattingParams(name, lsp.FormattingOptions(4, True))
            )
            assert edit.new_text == to_text(parse(messy))
            target = await client.text_document_definition_async(
                lsp.DefinitionParams(name, lsp.Position(line - 1, column + 22))
            )
            assert target.range.start.line + 1 == at("h@S(0)       = relu")[0]
            renamed = await client.text_document_rename_async(lsp.RenameParams(name, place, "logits"))
            assert len(renamed.changes[uri]) >= 8
            await client.shutdown_async(None)
        finally:
            client.exit(None)
            await client.stop()

    asyncio.run(asyncio.wait_for(work(), 100))


def test_columns_are_those_of_the_protocol() -> None:
    row = "    # 𝒙 is α, 🎲\u0301 too"
    for encoding, units in (
        (lsp.PositionEncodingKind.Utf8, 8),
        (lsp.PositionEncodingKind.Utf16, 16),
        (lsp.PositionEncodingKind.Utf32, 32),
    ):
        columns = Columns(["", row], PositionCodec(encoding))
        for column in range(1, len(row) + 2):
            length = len(row[: column - 1].encode(f"utf-{units}{'-le' * (units > 8)}")) // (units // 8)
            assert columns.position(2, column) == lsp.Position(1, length)
            assert columns.place(lsp.Position(1, length)) == (2, column)
        assert columns.place(lsp.Position(1, 999)) == columns.place(lsp.Position(9, 999)) == (2, len(row) + 1)


def test_without_pygls_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    done = CliRunner().invoke(command, [])
    assert isinstance(done.exception, HapError) and done.exception.diagnostics[0].code == "HAP822"


def test_a_text_is_looked_at_anew_when_what_it_imports_has_changed(tmp_path: Path) -> None:
    part, main = tmp_path / "part.hap", tmp_path / "main.hap"
    head, model, rest = TEXT.partition("model mlp")
    model, _, rest = (model + rest).partition("cluster box")
    part.write_text(head + model)
    text = f'import "part.hap"\ncluster box{rest}'
    found = Language()
    found.open(str(main), text)
    assert not found.findings(str(main))
    for broken in (True, False, True):
        part.write_text(model.replace("z = matmul(h, w2)", "z = matmul(h, w1)") if broken else model)
        found.open(str(main), text)
        assert bool(found.findings(str(main))) is broken
    part.write_text("model {")  # not even that can be read
    found.open(str(main), text)
    assert found.findings(str(main))
    part.write_text(model)
    found.open(str(main), text)
    assert not found.findings(str(main))


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.hap").write_text(
            f"device {folder} {{ compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 9 GB/s }}\n"
        )
    text = 'import "one/part.hap"\nimport "two/part.hap"\n'
    found = Language()
    found.open(str(tmp_path / "main.hap"), text)
    for line, folder in ((1, "one"), (2, "two")):
        place = found.elsewhere(str(tmp_path / "main.hap"), line, 10)
        assert place is not None and Path(place.file) == tmp_path / folder / "part.hap"
