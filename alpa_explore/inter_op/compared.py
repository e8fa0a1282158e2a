"""The schedules that the planner compares where none is named: 1F1B, and the others that the software runs.

Interleaved schedules are compared for every number v of stages on a submesh with which some pipeline of P submeshes
divides the layers into P·v equal stages, up to `MOST_TURNS`. DualPipe, which runs two copies of the model, has other
sharding problems than the rest, and is not among them. The paper's setting, and software whose schedules are not known,
have 1F1B alone.
"""

from contextlib import suppress
from dataclasses import replace

from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import AUTO, PipelineOptions, check_options
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.schedules.catalog import INTERLEAVED

MOST_TURNS = 8
"""Stages on a submesh: with more, each is short, and its sends are many. As `uniform_layouts.tuning.MOST_CHUNKS`."""


def compared(
    options: PipelineOptions, cluster: Cluster, num_layers: int, num_microbatches: int
) -> tuple[PipelineOptions, ...]:
    """The options with each schedule that is compared, 1F1B first; `options` alone where they name a schedule."""
    if options.schedule != AUTO:
        return (options,)
    first = replace(options, schedule=SCHEDULES[0])
    asked = [first]
    for name in cluster.software.schedules.split() if not options.paper else ():
        turns = _turns(options, cluster, num_layers, num_microbatches) if name == INTERLEAVED else (None,)
        for v in turns:
            named = replace(options, schedule=name, stages_per_submesh=v or first.stages_per_submesh)
            with suppress(OptionError):  # it does not exist for this pipeline
                check_options(named, cluster, num_layers, num_microbatches)
                if named.terms(1).copies == 1:
                    asked.append(named)
    return tuple(dict.fromkeys(asked))


def _turns(options: PipelineOptions, cluster: Cluster, layers: int, b: int) -> tuple[int, ...]:
    depths = (options.num_stages,) if options.num_stages else range(2, min(cluster.devices, layers // 2, b) + 1)
    divided = {layers // depth for depth in depths if depth > 1 and layers % depth == 0 and b % depth == 0}
    return tuple(v for v in range(2, MOST_TURNS + 1) if any(each % v == 0 for each in divided))
