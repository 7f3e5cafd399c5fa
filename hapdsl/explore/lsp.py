"""The language server: `language` over the protocol that editors speak (LSP, through pygls) on stdin and stdout.

Here columns count code points from 1; the protocol counts code units from 0, of UTF-16 unless both sides agree on another encoding
(`Columns`). Lines end with `\\n` inside, whatever the editor's end with.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec

from hapdsl import __version__
from hapdsl.explore.disk import unix
from hapdsl.explore.language import Edit, Language
from hapdsl.explore.state import Finding

WAITS = 0.03  # seconds that a text rests before it is looked at: of what is typed meanwhile only the newest counts


class Server(LanguageServer):
    """pygls' server with what the language knows of the texts that are open."""

    def __init__(self) -> None:
        super().__init__("hapdsl", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.language = Language()
        self.changed: dict[str, asyncio.TimerHandle] = {}  # by URI: not looked at yet

    def later(self, uri: str) -> None:
        """Look at a text when it rests."""
        if (waiting := self.changed.pop(uri, None)) is not None:
            waiting.cancel()
        self.changed[uri] = asyncio.get_running_loop().call_later(WAITS, self.look, uri)

    def look(self, uri: str) -> None:
        """Look at a text now, and tell what is wrong with it."""
        if (waiting := self.changed.pop(uri, None)) is not None:
            waiting.cancel()
        path = _path(uri)
        document = self.workspace.get_text_document(uri)
        self.language.open(path, unix(document.source))
        columns = self.columns(path)
        found = [_diagnostic(f, columns) for f in self.language.findings(path)]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, document.version))

    def fresh(self, uri: str) -> str:
        """The path of a text, whose newest version was looked at. Raises JsonRpcInvalidParams for one that can't be read."""
        path = _path(uri)
        if uri in self.changed or path not in self.language.documents:
            try:
                self.look(uri)
            except (OSError, UnicodeError) as problem:
                raise JsonRpcInvalidParams(f"{path} can't be read: {problem}") from None
        return path

    def columns(self, path: str) -> Columns:
        """Columns of an open text, as this editor counts them."""
        return Columns(self.language.documents[path].text.split("\n"), self.workspace.position_codec)

    def close(self, uri: str) -> None:
        """Forget a text; its diagnostics go as well."""
        if (waiting := self.changed.pop(uri, None)) is not None:
            waiting.cancel()
        self.language.close(_path(uri))
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


class Columns:
    """Places of a text (lines and code points from 1) as the protocol has them (lines and code units from 0), and back."""

    def __init__(self, rows: Sequence[str], codec: PositionCodec) -> None:
        self.rows, self.codec = rows, codec

    def row(self, line: int) -> str:
        return self.rows[line - 1] if 0 < line <= len(self.rows) else ""

    def position(self, line: int, column: int) -> lsp.Position:
        return lsp.Position(max(0, line - 1), self.codec.client_num_units(self.row(line)[: max(0, column - 1)]))

    def range(self, line: int, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(line, start), self.position(line, end))

    def place(self, position: lsp.Position) -> tuple[int, int]:
        """Line and column; a position behind the end of a line, or of the text, is at the end."""
        line = min(position.line + 1, len(self.rows))
        units = column = 0
        for column, letter in enumerate(self.row(line), 1):
            if units >= position.character:
                return line, column
            units += self.codec.client_num_units(letter)
        return line, column + 1


def server() -> Server:
    """A server with all that the language offers."""
    made = Server()
    language = made.language

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        made.look(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        made.later(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        """Other texts may import the one that was saved."""
        for uri in list(made.workspace.text_documents):
            made.later(uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        made.close(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        path = made.fresh(params.text_document.uri)
        words = language.hover(path, *made.columns(path).place(params.position))
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.PlainText, words)) if words else None

    @made.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        path = made.fresh(uri)
        place = made.columns(path).place(params.position)
        target = language.definition(path, *place)
        if target is not None:
            return lsp.Location(uri, made.columns(path).range(target[0], target[1], target[1]))
        found = language.elsewhere(path, *place)
        if found is None or (there := from_fs_path(found.file)) is None:
            return None
        columns = Columns(Path(found.file).read_text(encoding="utf-8-sig").split("\n"), made.workspace.position_codec)
        return lsp.Location(there, columns.range(found.line, found.column, found.column))

    @made.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        uri = params.text_document.uri
        path = made.fresh(uri)
        columns = made.columns(path)
        try:
            edits = language.rename(path, *columns.place(params.position), params.new_name)
        except ValueError as problem:
            raise JsonRpcInvalidParams(str(problem)) from None
        return lsp.WorkspaceEdit(changes={uri: [_edit(e, columns) for e in edits]})

    @made.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        path = made.fresh(params.text_document.uri)
        text = language.format(path)
        now = language.documents[path].text
        if text is None or text == now:
            return []
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(now.count("\n") + 1, 0))
        return [lsp.TextEdit(whole, text)]

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]))
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        path = made.fresh(uri)
        columns = made.columns(path)
        return [
            lsp.CodeAction(
                a.title, kind=lsp.CodeActionKind.QuickFix, diagnostics=[_diagnostic(a.finding, columns)],
                edit=lsp.WorkspaceEdit(changes={uri: [_edit(a.edit, columns)]}), is_preferred=True,
            )
            for a in language.actions(path, params.range.start.line + 1, params.range.end.line + 1)
        ]  # fmt: skip

    return made


def serve() -> int:
    """Answer an editor until it says goodbye. Whatever else is printed meanwhile goes to stderr; so do the server's own faults, without
    what an editor was merely told ("that name is taken")."""
    logging.getLogger("pygls.protocol.json_rpc").addFilter(_is_a_fault)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server().start_io(requests, answers)
    return 0


def _is_a_fault(record: logging.LogRecord) -> bool:
    problem = record.exc_info[1] if record.exc_info else None
    return not isinstance(problem, JsonRpcInvalidParams)


def _path(uri: str) -> str:
    return to_fs_path(uri) or uri


def _edit(edit: Edit, columns: Columns) -> lsp.TextEdit:
    return lsp.TextEdit(columns.range(*edit.span), edit.text)


def _diagnostic(f: Finding, columns: Columns) -> lsp.Diagnostic:
    """One that stands in another file is told at the top, with its place."""
    if f.here and f.line:
        last = f.end_line if f.end_line >= f.line else f.line
        # at least one letter is underlined
        end = max(f.column + 1, f.end_column) if last == f.line else f.end_column
        span = lsp.Range(columns.position(f.line, f.column), columns.position(last, end))
        message = f.message
    else:
        span = columns.range(1, 1, 1)
        message = f"{f.file}:{f.line}: {f.message}" if f.file else f.message
    severity = lsp.DiagnosticSeverity.Error if f.is_error else lsp.DiagnosticSeverity.Warning
    return lsp.Diagnostic(span, f"{message}\n{f.help}" if f.help else message, severity, f.code, source="hapdsl")
