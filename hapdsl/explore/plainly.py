"""A line in plain words, for whoever hasn't read its triple before."""

from __future__ import annotations

from hapdsl.explore.desk import Opened
from hapdsl.graph.program import Instruction, Value
from hapdsl.lang.amounts import in_bytes, in_seconds

METHODS = {
    "ring": "in a ring",
    "tree": "up a tree and down again",
    "hierarchical": "within each node first, then between the nodes",
    "padded": "with all shards padded to the largest, in one call",
    "grouped": "as one broadcast or reduction per shard, each of its own length",
    "pairwise": "each device with each other",
}


def plainly(opened: Opened, k: int, turns: int) -> str:
    """Two or three sentences on what instruction `k` does, what holds before and after it, and what it costs; `turns` of a repeat do it."""
    instruction = opened.program.instructions[k]
    parts = [_does(opened, instruction)]
    if turns > 1:
        parts.append(f"It is done in {turns} turns of the repeat.")
    times = opened.program.graph.times(instruction.section)
    if times > 1:
        parts.append(f"Each step does it {times} times, once per microbatch.")
    seconds = opened.cost.per_instruction_s[k]
    if seconds.max(initial=0.0) <= 0:
        parts.append("It takes no time by the cost model.")
    elif instruction.is_collective:
        parts.append(f"All devices wait for it: {in_seconds(float(seconds.max()))} each time.")
    else:
        d = int(seconds.argmax())
        parts.append(f"{opened.cluster.devices[d].name} takes longest, {in_seconds(float(seconds[d]))} each time.")
    return " ".join(parts)


def _does(opened: Opened, i: Instruction) -> str:
    first = (i.outputs or i.inputs)[0] if (i.outputs or i.inputs) else None
    graph = opened.program.graph
    names = _and([f"'{v.tensor}'" for v in (i.outputs or i.inputs)])
    size = in_bytes(sum(graph.tensors[v.tensor].bytes for v in i.inputs))
    how = METHODS.get(i.method or "", "")
    how = f", {how}" if how else ""
    if i.node is not None:
        return _computes(opened, i)
    if first is None:
        return f"{i.op}."
    match i.op:
        case "input":
            return f"The batch is loaded: {_lies(opened, i.outputs)}."
        case "param" | "state":
            what = "parameters" if i.op == "param" else "optimizer's state"
            return f"The {what} {names} {'is' if len(i.outputs) == 1 else 'are'} held by the devices for the whole training: {_lies(opened, i.outputs)}."
        case "seed":
            return "The backward pass begins here: the gradient of the loss with respect to itself is 1."
        case "all_reduce":
            return f"Each device has only its part of the sum of {names}. The parts are added up over the network ({size}{how}), and afterwards each device has the whole sum."
        case "all_gather":
            return f"Each device has a slice of {names}. The slices are sent around ({size}{how}), and afterwards each device has all of it."
        case "reduce_scatter":
            return f"Each device has only its part of the sum of {names}. The parts are added up over the network, and each device keeps one slice of the sum ({size}{how})."
        case "all_to_all":
            return f"{names} lies cut one way on the devices and is needed cut another way, so that each device sends a part of its slice to each other ({size}{how})."
        case "slice":
            return f"Each device has all of {names} and keeps only its own slice. Nothing is sent."
        case "partial":
            return f"All devices have {names}; from here on it counts as a sum to which one device contributes all and the others nothing. Nothing is sent."
        case "free":
            return f"{names} isn't needed any more, and its memory is given back."
    return f"{i.op} of {names}."


def _computes(opened: Opened, i: Instruction) -> str:
    assert i.node is not None
    cut = sorted(
        {
            _class(opened, v, p.dim)
            for v in (*i.inputs, *i.outputs)
            for p in v.placement
            if p.kind == "S" and p.dim is not None
        }
    )
    what = (
        f"The model's {i.op} of {_and([repr(n) for n in dict.fromkeys(v.tensor for v in i.inputs)])}"
        if i.inputs
        else f"The model's {i.op}"
    )
    out = i.outputs[0]
    if not cut:
        same = " Each device does the same whole computation." if out.placement[0].kind == "R" else ""
        return f"{what} is computed where it is needed.{same}"
    each = f"each device takes its share of {_and(cut)}"
    kinds = {p.kind for p in out.placement}
    if "S" in kinds:
        after = f"and ends with its slice of '{out.tensor}'"
    elif "P" in kinds:
        after = f"and ends with a summand of '{out.tensor}': the true value is the sum over the devices"
    else:
        after = f"and ends with all of '{out.tensor}'"
    return f"{what}: {each} {after}. Nothing is sent."


def _class(opened: Opened, value: Value, dim: int) -> str:
    return str(opened.program.graph.tensors[value.tensor].classes[dim])


def _lies(opened: Opened, values: tuple[Value, ...]) -> str:
    groups: dict[str, list[str]] = {}
    for v in values:
        by = [_class(opened, v, p.dim) for p in v.placement if p.kind == "S" and p.dim is not None]
        groups.setdefault(f"cut by {_and(by)}" if by else "whole on each device", []).append(v.tensor)
    return "; ".join(f"{_and(names)} {how}" for how, names in groups.items())


def _and(words: list[str]) -> str:
    shown = words if len(words) <= 4 else [*words[:3], f"{len(words) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "nothing"
