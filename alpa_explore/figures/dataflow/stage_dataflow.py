"""The operators of a stage as a graph: a group for each block, equal blocks as one, with collectives on the edges.

`stage_dataflow` is a value that any page can draw. Of equal blocks the nodes are those of the first, and stand for the
operators of all of them. Updates of the weights of one part of a block (its attention, its MLP) are one node.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from alpa_explore import units
from alpa_explore.figures.dataflow.wiring import ENTERS, WEIGHT, Read, is_view, stage_reads, views_of
from alpa_explore.figures.decisions.operator_rows import equality, kind
from alpa_explore.plans.phrases import logical_mesh_phrase, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.tables import stage_named

OUTSIDE = "(outside of modules)"
"""The name of the group of operators without a module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the model, or equal blocks that follow one another."""

    members: tuple[tuple[PlanOperator, ...], ...]
    """For each of the equal blocks its operators in execution order; the k-th of one is the k-th of the others."""
    names: tuple[str, ...]
    """Of the blocks, as `members`."""

    def seconds(self, attribute: str) -> dict[str, float]:
        """Phase, in the order in which a stage runs them -> the sum of an attribute of all operators of its blocks."""
        every = [o for member in self.members for o in member]
        phases = ("forward", "backward", "update")
        return {phase: sum(getattr(o, attribute) for o in every if o.phase == phase) for phase in phases}

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
        return self.names[0] if self.count == 1 else f"{self.names[0]} – {self.names[-1]}"


def stage_blocks(stage: PlanStage) -> tuple[Block, ...]:
    """The blocks of a stage in the order of the forward pass, equal ones that follow one another as one."""
    of_block: dict[str, list[PlanOperator]] = {}
    forward, names = [o for o in stage.operators if o.phase == "forward"], _block_names(stage)
    for operator in (*forward, *(o for o in stage.operators if o.phase != "forward")):
        of_block.setdefault(names[operator.name], []).append(operator)
    groups: list[tuple[object, list[str]]] = []
    for name, operators in of_block.items():
        signature = _signature(operators)
        if groups and groups[-1][0] == signature and name.rpartition(".")[2].isdecimal():
            groups[-1][1].append(name)
        else:
            groups.append((signature, [name]))
    return tuple(
        Block(names=tuple(names), members=tuple(tuple(of_block[name]) for name in names)) for _, names in groups
    )


def _block_names(stage: PlanStage) -> dict[str, str]:
    """Operator -> the name of its block. Where a model computes behind several blocks outside of them, as a U-Net does
    with its skips, that belongs to the block before: as a group of its own it would be joined to all others."""
    names, moved = {o.name: block_name(o.module) for o in stage.operators}, dict[str, str]()
    for phase, operators in (("forward", stage.operators), ("backward", reversed(stage.operators))):
        before = ""
        for operator in operators:
            name = names[operator.name] if operator.phase == phase else OUTSIDE
            if name != OUTSIDE:
                before = name
            elif before and operator.phase == phase:
                moved[operator.name] = before
    behind = {moved[o.name] for o in stage.operators if o.phase == "forward" and o.name in moved}
    return names | moved if len(behind) > 1 else names


def block_name(module: str) -> str:
    """'h.3.attention.qkv' -> 'h.3'; 'stages.0.2.conv' -> 'stages.0.2'; 'embedding.tokens' -> 'embedding'."""
    numbered = re.match(r"(.*?\.)??\d+(\.\d+)*(?=\.|$)", module)
    return numbered[0] if numbered else module.split(".")[0] or OUTSIDE


def part_of_block(module: str) -> str:
    """The part of its block that a module belongs to: 'h.3.attention.qkv' -> 'attention'; '' for the block itself."""
    return module.removeprefix(block_name(module)).removeprefix(".").partition(".")[0]


def _signature(operators: Sequence[PlanOperator]) -> object:
    """Equal for blocks whose operators, specs and collectives are equal. What they recompute may differ."""
    return tuple(equality(o, o.module.removeprefix(block_name(o.module))) for o in operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowNode:
    """An operator of a block, or all updates of one part of it."""

    id: str
    group: str
    operators: tuple[PlanOperator, ...]
    """What it stands for: an operator of the first block, or its updates."""
    equal: tuple[PlanOperator, ...]
    """The same ones of the other blocks of the group."""
    views: tuple[PlanOperator, ...] = ()
    """Operators that take no time and are drawn as part of these, in all equal blocks."""

    @property
    def operator(self) -> PlanOperator:
        """The first one."""
        return self.operators[0]

    @property
    def label(self) -> str:
        """'addmm', 'softmax'; 'update × 4'."""
        if self.operator.phase == "update":
            return "update" if len(self.operators) == 1 else f"update × {len(self.operators)}"
        return kind(self.operator).strip("_")

    @property
    def compute_seconds(self) -> float:
        """Of one block."""
        return sum(o.compute_seconds for o in self.operators)

    @property
    def communication_seconds(self) -> float:
        """Of one block."""
        return sum(o.communication_seconds for o in self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowEdge:
    """Tensors that go from a node to another, perhaps through a collective."""

    source: str
    """Id of a node; '' where they enter the stage, or are stored weights."""
    target: str
    """Id of a node; '' where they leave the stage."""
    end: str
    """What stands in place of a node (`wiring.ENTERS`, `WEIGHT`, `LEAVES`); '' for an edge between two."""
    next_block: bool
    """Whether it leads from one of several equal blocks to the next."""
    reads: tuple[Read, ...]

    @property
    def seconds(self) -> float:
        """Of the collectives, of all equal edges."""
        return sum(read.collective.seconds for read in self.reads if read.collective is not None)

    @property
    def kinds(self) -> str:
        """'all-gather', 'all-gather, all-to-all'; '' where nothing is moved."""
        kinds = [k for read in self.reads if read.collective is not None for k in read.collective.kinds.split(", ")]
        return ", ".join(dict.fromkeys(kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDataflow:
    """A stage as a graph."""

    stage: PlanStage
    groups: tuple[Block, ...]
    """In the order of the forward pass."""
    nodes: tuple[DataflowNode, ...]
    """In execution order within a group."""
    edges: tuple[DataflowEdge, ...]
    wired: bool
    """Whether the plan holds which tensors an operator reads; else edges follow the order of execution."""


def stage_dataflow(plan: Plan, stage: int = 0) -> StageDataflow:
    """The graph of a stage. OptionError for a stage that the plan does not have."""
    shown = stage_named(plan, stage)
    blocks = stage_blocks(shown)
    views = views_of(shown)
    nodes = tuple(
        replace(node, views=tuple(v for o in (*node.operators, *node.equal) for v in views.get(o.name, ())))
        for number, block in enumerate(blocks)
        for node in _nodes(block, f"g{number}")
    )
    reads, wired = stage_reads(shown), any(o.input_names for o in shown.operators)
    return StageDataflow(
        stage=shown,
        groups=blocks,
        nodes=nodes,
        edges=tuple(_edges(blocks, nodes, reads) if wired else _in_order(nodes)),
        wired=wired,
    )


def sentence_of(flow: StageDataflow) -> str:
    """The stage, its blocks, and its most expensive collective."""
    shown = flow.stage
    if not shown.operators:
        return f"The strategies of stage {shown.index} are not in the plan: plan again to see them."
    named = f"{stage_phrase(shown)} ({logical_mesh_phrase(shown.logical_mesh)})"
    blocks = sum(group.count for group in flow.groups)
    found = [f"{named[0].upper()}{named[1:]}: {len(shown.operators):,} operators in {blocks} blocks"]
    most = max(flow.groups, key=lambda group: group.count)
    if most.count > 1:
        found.append(f"{most.count} of them are equal ({most.label}) and are drawn once")
    moved = [(read, read.collective) for edge in flow.edges for read in edge.reads if read.collective is not None]
    of_microbatch = [pair for pair in moved if not pair[1].once]
    if moved:
        read, longest = max(of_microbatch or moved, key=lambda pair: pair[1].seconds)
        when = f"in a microbatch: {longest.kinds}" if of_microbatch else f"once an iteration: {longest.kinds}"
        found.append(f"The longest collective {when} of {read.tensor}, {units.seconds(longest.seconds)}")
    else:
        found.append("No tensor is moved between devices")
    if not flow.wired:
        found.append("The plan does not hold which tensors operators read (an older file): edges follow the order")
    return ". ".join(found) + "."


def _nodes(block: Block, group: str) -> Iterator[DataflowNode]:
    """Those of the first of the equal blocks."""
    others = block.members[1:]
    updates: dict[str, list[int]] = {}
    for place, operator in enumerate(block.operators):
        if operator.phase == "update":
            updates.setdefault(part_of_block(operator.module), []).append(place)
        elif not is_view(operator):
            yield _node(block, others, group, [place])
    for places in updates.values():
        yield _node(block, others, group, places)


def _node(block: Block, others: Sequence[Sequence[PlanOperator]], group: str, places: Sequence[int]) -> DataflowNode:
    operators = tuple(block.operators[place] for place in places)
    return DataflowNode(
        id=f"{group}.{places[0]}",
        group=group,
        operators=operators,
        equal=tuple(member[place] for member in others for place in places),
    )


def _edges(blocks: Sequence[Block], nodes: Sequence[DataflowNode], reads: Sequence[Read]) -> Iterator[DataflowEdge]:
    """Of equal blocks the edges inside the first; those between blocks once, with all their reads. What enters or is
    stored has an edge where a collective moves it."""
    member_of = {o.name: k for block in blocks for k, member in enumerate(block.members) for o in member}
    node_of = {o.name: node for node in nodes for o in (*node.operators, *node.equal)}
    found: dict[tuple[str, str, str, bool], list[Read]] = {}
    for read in reads:
        source, target = node_of.get(read.source), node_of.get(read.target)
        inside = source is not None and target is not None and source.group == target.group
        between = inside and member_of[read.source] != member_of[read.target]
        alone = source is None or target is None or (inside and not between)
        if alone and member_of[read.target or read.source] > 0:
            continue  # the same as in the first of the equal blocks
        if read.end in (ENTERS, WEIGHT) and read.collective is None:
            continue  # it has a tile at its operator
        ends = (source.id if source is not None else "", target.id if target is not None else "")
        found.setdefault((*ends, read.end, between), []).append(read)
    for (source_id, target_id, end, between), together in found.items():
        yield DataflowEdge(source=source_id, target=target_id, end=end, next_block=between, reads=tuple(together))


def _in_order(nodes: Sequence[DataflowNode]) -> Iterator[DataflowEdge]:
    """From each node to the next of its group and phase, where more is not known."""
    last: dict[tuple[str, str], DataflowNode] = {}
    for node in nodes:
        place = node.group, node.operator.phase
        before = last.get(place)
        if before is not None and node.operator.phase != "update":
            read = Read(tensor="", source=before.operator.name, target=node.operator.name)
            yield DataflowEdge(source=before.id, target=node.id, end="", next_block=False, reads=(read,))
        last[place] = node
