"""The language: text to tree and back, diagnostics with codes, units."""
