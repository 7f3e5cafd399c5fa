"""What the search takes: `python -m benchmarks.search` (or `make bench`) measures, and writes the tables of docs/performance.md."""
