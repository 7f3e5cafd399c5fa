"""What a forward pass does under `torch.no_grad()`, which an exported graph keeps apart: brought into the graph, results that pass no gradient."""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, Node

BLOCK = "wrap_with_set_grad_enabled"  # (whether gradients are on, a graph of its own, what it reads)


def flatten(graph: Graph) -> None:
    """Put the operators of all blocks in their place; behind a block without gradients each result is detached. Cost: linear in nodes."""
    while blocks := [n for n in graph.nodes if n.op == "call_function" and str(n.target) == BLOCK]:
        for block in blocks:
            _inline(graph, block)


def _inline(graph: Graph, block: Node) -> None:
    enabled, inner, *given = block.args
    assert isinstance(inner, Node) and graph.owning_module is not None
    nested = graph.owning_module.get_submodule(str(inner.target))
    assert isinstance(nested, torch.fx.GraphModule)
    within = nested.graph
    with graph.inserting_before(block):
        copies: dict[Node, Node] = {}
        for node, value in zip((n for n in within.nodes if n.op == "placeholder"), given, strict=True):
            assert isinstance(value, Node)
            copies[node] = value
        for node in within.nodes:
            if node.op not in ("placeholder", "output"):
                copies[node] = graph.node_copy(node, lambda n: copies[n])
        results = within.output_node().args[0]
        assert isinstance(results, tuple | list)
        made: list[Node | None] = []
        for result in results:
            if not isinstance(result, Node):
                made.append(None)
                continue
            found = copies[result]
            if not enabled and isinstance(found.meta.get("val"), torch.Tensor):
                meta = found.meta
                found = graph.call_function(torch.ops.aten.detach.default, (found,))
                found.meta = dict(meta)
            made.append(found)
    for user in list(block.users):
        assert user.target is operator.getitem
        value = made[user.args[1]]  # type: ignore[index]
        assert value is not None
        user.replace_all_uses_with(value)
        graph.erase_node(user)
    graph.erase_node(block)
    if not inner.users:
        graph.erase_node(inner)
