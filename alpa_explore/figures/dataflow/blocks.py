"""The blocks of a stage: the operators of one block of the model together, and runs of equal blocks as one group.

A block is what the name of its module says: 'h.3' for 'h.3.attention.qkv'. Operators outside any block are grouped by
the first part of their module's name ('embedding', 'final_norm'). A backward operator and an update have the module of
the forward operator that they belong to, so that a group holds all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.plans.records import PlanOperator, PlanStage

PHASES = ("forward", "backward", "update")
"""In the order in which a stage runs them."""
OUTSIDE = "(outside of modules)"
"""The name of the group of operators without a module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the model, or equal blocks that follow one another."""

    name: str
    """Of the first block."""
    members: tuple[tuple[PlanOperator, ...], ...]
    """For each of the equal blocks its operators in execution order; the k-th of one is the k-th of the others."""
    names: tuple[str, ...]
    """Of the blocks, as `members`."""

    @property
    def count(self) -> int:
        """How many blocks."""
        return len(self.members)

    @property
    def operators(self) -> tuple[PlanOperator, ...]:
        """Those of the first block."""
        return self.members[0]

    @property
    def label(self) -> str:
        """'h.0', or 'h.0 – h.5'."""
        return self.name if self.count == 1 else f"{self.names[0]} – {self.names[-1]}"


def stage_blocks(stage: PlanStage) -> tuple[Block, ...]:
    """The blocks of a stage in the order of the forward pass, equal ones that follow one another as one."""
    of_block: dict[str, list[PlanOperator]] = {}
    forward = [o for o in stage.operators if o.phase == "forward"]
    for operator in (*forward, *(o for o in stage.operators if o.phase != "forward")):
        of_block.setdefault(block_name(operator.module), []).append(operator)
    groups: list[tuple[object, list[str]]] = []
    for name, operators in of_block.items():
        signature = _signature(operators)
        if groups and groups[-1][0] == signature and _in_block(name):
            groups[-1][1].append(name)
        else:
            groups.append((signature, [name]))
    return tuple(
        Block(name=names[0], names=tuple(names), members=tuple(tuple(of_block[name]) for name in names))
        for _, names in groups
    )


def block_name(module: str) -> str:
    """'h.3.attention.qkv' -> 'h.3'; 'stages.0.2.conv' -> 'stages.0.2'; 'embedding.tokens' -> 'embedding'."""
    parts = module.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    if not numbers:
        return parts[0] or OUTSIDE
    end = numbers[0] + 1
    while end < len(parts) and parts[end].isdecimal():
        end += 1
    return ".".join(parts[:end])


def part_of_block(module: str) -> str:
    """The part of its block that a module belongs to: 'h.3.attention.qkv' -> 'attention'; '' for the block itself."""
    return module.removeprefix(block_name(module)).removeprefix(".").partition(".")[0]


def _in_block(name: str) -> bool:
    return name.rpartition(".")[2].isdecimal()


def _signature(operators: Sequence[PlanOperator]) -> object:
    """Equal for blocks whose operators, specs and collectives are equal. What they recompute may differ."""
    return tuple(
        (
            o.phase,
            o.op,
            o.module.removeprefix(block_name(o.module)),
            o.strategy,
            o.inputs,
            o.outputs,
            o.output_shape,
            o.communication_seconds > 0,
        )
        for o in operators
    )
