"""The language server: `language` over the protocol that editors speak (LSP, through pygls) on stdin and stdout."""

from __future__ import annotations

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from hapdsl import __version__
from hapdsl.explore.language import Edit, Language
from hapdsl.explore.state import Finding


def server() -> LanguageServer:
    """A server with all that the language offers."""
    made = LanguageServer("hapdsl", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
    language = Language()

    def look(uri: str) -> None:
        path = _path(uri)
        language.open(path, made.workspace.get_text_document(uri).source)
        found = [_diagnostic(f) for f in language.findings(path)]
        made.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=found))

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        look(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        look(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        language.close(_path(params.text_document.uri))

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        words = language.hover(_path(params.text_document.uri), params.position.line + 1, params.position.character + 1)
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.PlainText, words)) if words else None

    @made.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        target = language.definition(_path(uri), params.position.line + 1, params.position.character + 1)
        return None if target is None else lsp.Location(uri, _range(target[0], target[1], target[1]))

    @made.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        uri = params.text_document.uri
        try:
            edits = language.rename(_path(uri), params.position.line + 1, params.position.character + 1, params.new_name)
        except ValueError as problem:
            raise JsonRpcInvalidParams(str(problem)) from None
        return lsp.WorkspaceEdit(changes={uri: [_edit(e) for e in edits]})

    @made.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        path = _path(params.text_document.uri)
        text = language.format(path)
        now = language.documents[path].text
        if text is None or text == now:
            return []
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(now.count("\n") + 1, 0))
        return [lsp.TextEdit(whole, text)]

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]))
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        return [
            lsp.CodeAction(
                a.title, kind=lsp.CodeActionKind.QuickFix, diagnostics=[_diagnostic(a.finding)], edit=lsp.WorkspaceEdit(changes={uri: [_edit(a.edit)]}), is_preferred=True,
            )
            for a in language.actions(_path(uri), params.range.start.line + 1, params.range.end.line + 1)
        ]  # fmt: skip

    return made


def serve() -> int:
    """Answer an editor until it says goodbye."""
    server().start_io()
    return 0


def _path(uri: str) -> str:
    return to_fs_path(uri) or uri


def _range(line: int, start: int, end: int) -> lsp.Range:
    return lsp.Range(lsp.Position(max(0, line - 1), max(0, start - 1)), lsp.Position(max(0, line - 1), max(0, end - 1)))


def _edit(edit: Edit) -> lsp.TextEdit:
    return lsp.TextEdit(_range(*edit.span), edit.text)


def _diagnostic(f: Finding) -> lsp.Diagnostic:
    """One that stands in another file is told at the top, with its place."""
    if f.here and f.line:
        last = f.end_line if f.end_line >= f.line else f.line
        span = lsp.Range(lsp.Position(f.line - 1, max(0, f.column - 1)), lsp.Position(last - 1, max(f.column, f.end_column - 1)))
        message = f.message
    else:
        span = _range(1, 1, 1)
        message = f"{f.file}:{f.line}: {f.message}" if f.file else f.message
    severity = lsp.DiagnosticSeverity.Error if f.is_error else lsp.DiagnosticSeverity.Warning
    return lsp.Diagnostic(span, f"{message}\n{f.help}" if f.help else message, severity, f.code, source="hapdsl")
