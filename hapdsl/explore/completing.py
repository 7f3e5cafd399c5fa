"""A sketch completed in its text by the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hapdsl.check.write import write
from hapdsl.explore.desk import Desk
from hapdsl.explore.splicing import replaced
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.complete import complete as search
from hapdsl.search.plan import Progress
from hapdsl.virtual import planned

Object = dict[str, Any]
Say = Callable[[Object], None]


def complete(desk: Desk, request: Object, say: Say, waiting: Callable[[], bool]) -> None:
    """Tell what the search does, then the `text` in which the sketch is a whole program.

    Raises HapError for a text with errors, for lines that can't all stand, and where nothing fits.
    """
    bench, tree = desk.bench(request), desk.tree(request)
    cluster = bench.cluster_of(tree) or bench.cluster(request.get("cluster"))
    checked = bench.checked(tree)
    if not checked.ok:
        raise HapError(*checked.diagnostics.errors)

    def progress(news: Progress) -> None:
        say({"doing": news.doing, "best_s": news.best_s, "bound_s": news.bound_s})

    found = search(checked, tree, cluster.outer() if cluster.virtual else cluster, progress=progress)
    if cluster.virtual:
        found = planned(found, cluster)
    found.program.cluster, found.program.model_args = tree.cluster, bench.settings(tree)
    text = replaced(desk.text(request), tree, write(found.program))
    say({"text": text, "cost_s": found.cost_s, "gap": found.gap, "bound_s": found.bound_s})
