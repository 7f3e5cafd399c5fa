"""Drawings: Graphviz pictures of programs and training graphs, timelines as Chrome traces."""
