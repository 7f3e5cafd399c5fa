"""Collectives by their cheapest methods: for programs whose methods nobody chose."""

from __future__ import annotations

from dataclasses import replace

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import candidates
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Instruction, Program


def with_cheapest_methods(program: Program, cluster: Cluster) -> Program:
    """The program with each collective by the method that takes its slowest group least; the first listed one wins a tie."""
    pricer = Pricer(program.graph, program.layout, cluster)

    def cheapest(instruction: Instruction) -> Instruction:
        if not instruction.is_collective:
            return instruction
        devices = program.layout.mesh[instruction.axis][1]
        options = [replace(instruction, method=m) for m in candidates(instruction.op, cluster, devices)]
        return min(options, key=lambda i: float(pricer.price(i).seconds.max()))

    return replace(program, instructions=[cheapest(i) for i in program.instructions])
