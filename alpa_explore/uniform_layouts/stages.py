"""How each framework divides the blocks of a model among the parts of its pipeline.

Parts are in the order of the model: with interleaving (vp > 1), part c · pp + s is chunk c of stage s.

- pp · vp divides the layers: equal parts, in every framework but nanotron.
- nanotron (nanotron/models/base.py, described in the Ultra-Scale Playbook): a block costs 4·h² + 3·h·ffn, the LM head
  h · V, the rest nothing; blocks go to a stage until the running cost has passed the stage's share of the whole. The
  head then is worth several blocks, late stages get fewer, and a rank may get nothing at all, which stops the run.
- Megatron-DeepSpeed, where pp does not divide the layers (partition method 'type:transformer|embedding'): embedding and
  head count as a block each; every stage is filled up to the least possible size of the largest.
- The others: embedding and head count as a block each (Megatron-Core's account_for_…_in_pipeline_split, torchtitan),
  if they then divide evenly; else the first parts get one block more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from alpa_explore.baselines.equal_stages import block_counts
from alpa_explore.baselines.layout import Layout, Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What layouts divide, and by which frameworks cut pipelines."""

    layers: int
    hidden: int
    heads: int
    """0 where there is no attention."""
    kv_heads: int
    ffn: int
    vocabulary: int
    """As the source gives it; frameworks pad it. 0 where there is none."""
    predicted_ahead: int = 0
    """Further tokens that are predicted in training, each by a block and the head again (DeepSeek-V3, arXiv 2412.19437,
    §2.2)."""

    @property
    def sizes(self) -> str:
        """'24 layers, hidden 1,024, 16 heads, vocabulary 50,257'."""
        keys = "" if self.kv_heads == self.heads else f" ({self.kv_heads:,} of keys)"
        heads = f", {self.heads:,} heads{keys}" if self.heads else ""
        words = f", vocabulary {self.vocabulary:,}" if self.vocabulary else ""
        return f"{self.layers:,} layers, hidden {self.hidden:,}{heads}{words}"


def blocks_of_parts(sizes: Sizes, pipeline: int, chunks: int, software: str) -> tuple[int, ...]:
    """The number of blocks of each of the pp · vp parts; part 0 also has the embedding, the last one norm and head."""
    layers, parts = sizes.layers, pipeline * chunks
    if sizes.predicted_ahead and parts > 1:
        return _before_prediction(layers, parts)
    if software == "nanotron" and chunks == 1:
        return _by_cost(sizes, parts)[0]
    if software == "megatron-deepspeed" and layers % parts:
        return _filled(layers, parts)
    return block_counts(layers, parts)


def pipeline_parts(sizes: Sizes, kinds: Sequence[int], layout: Layout, software: str) -> Parts:
    """The parts of the pipeline of a layout, from the kind of every block of the model. The LM head and the loss are in
    the last part, or in an earlier one where nanotron's costs place them."""
    blocks = blocks_of_parts(sizes, layout.pipeline, layout.chunks, software)
    head = len(blocks) - 1 - idle_ranks(sizes, layout.pipeline, software) * (layout.chunks == 1)
    counted = [Counter(kinds[first:end]) for first, end in pairwise(accumulate(blocks, initial=0))]
    return tuple(
        (int(place == 0), *(part[kind] for kind in range(max(kinds) + 1)), int(place == head))
        for place, part in enumerate(counted)
    )


def idle_ranks(sizes: Sizes, pipeline: int, software: str) -> int:
    """Number of stages that get nothing of the model, not even its loss; nanotron fails where there is one."""
    if software != "nanotron":
        return 0
    return pipeline - 1 - _by_cost(sizes, pipeline)[1]


def _by_cost(sizes: Sizes, stages: int) -> tuple[tuple[int, ...], int]:
    """(blocks of each stage, last stage that gets anything: the loss), as nanotron divides them."""
    hidden = sizes.hidden
    block = 4 * hidden * hidden + 3 * hidden * sizes.ffn
    head = hidden * sizes.vocabulary
    parts = [0, *(block,) * sizes.layers, 0, head, 0, 0]  # embedding, blocks, norm, head, cast, loss
    whole, cost, stage, last = sum(parts), 0, 0, 0
    counts = [0] * stages
    for place, part in enumerate(parts):
        cost, last = cost + part, stage
        if 1 <= place <= sizes.layers:
            counts[stage] += 1
        if cost * stages > whole * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts), last


def _filled(layers: int, stages: int) -> tuple[int, ...]:
    """Stages filled in turn with embedding, blocks and head, one unit each, to the least possible size of the
    largest."""
    most = -(-(layers + 2) // stages)
    units = [0, *(1,) * layers, 0]  # 1 where the unit is a block
    return tuple(sum(units[i * most : (i + 1) * most]) for i in range(stages))


def _before_prediction(layers: int, parts: int) -> tuple[int, ...]:
    """Parts of equal size but the last, with what is left: it has the blocks that predict further tokens, and their
    heads, too. Where that leaves less than nothing, the first part has fewer as well (Megatron-Bridge's pp_layout of
    DeepSeek-V3, "Et*4|(t*4|)*14tmL" and "Et|(tt|)*30mL")."""
    each = -(-layers // parts)
    rest = layers - each * (parts - 2)
    first = min(each, max(rest, 0))
    return (first, *(each,) * (parts - 2), max(rest - first, 0))
