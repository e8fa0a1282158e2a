"""Seconds from a Llama module (width 4096, grouped-query attention) to the proven optimum of its sharding.

    python benchmarks/llama.py [--layers 2 8] [--cluster 8x8:a100]

The whole model is one stage on one logical mesh with the shape of the cluster; the graph holds forward, backward and
update, and partial sums are states. For comparison, meta-pytorch/autoparallel on a machine of this kind, without its
tying of layers (which is not exact): 27 s to build and 24 s (HiGHS) or 42 s (CBC) to solve for 2 layers, 65 s and 118 s
or 293 s for 8 layers. Needs the extra `hf`.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import alpa_explore as ax
from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators

WIDTH, INTERMEDIATE, HEADS, KEY_VALUE_HEADS, VOCABULARY = 4096, 14336, 32, 8, 32000
BATCH, SEQUENCE = 64, 2048
"""Samples of a microbatch, and their tokens."""
NUM_MICROBATCHES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[2, 8])
    parser.add_argument("--cluster", default="8x8:a100")
    options = parser.parse_args()
    cluster = Cluster.parse(options.cluster)
    whole = (cluster.nodes, cluster.devices_per_node)
    mesh = next(m for s in submeshes(cluster) for m in logical_meshes(cluster, s) if tuple(m.shape) == whole)
    for layers in options.layers:
        config = LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=INTERMEDIATE,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_VALUE_HEADS,
            num_hidden_layers=layers,
            vocab_size=VOCABULARY,
        )
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        tokens = torch.randint(config.vocab_size, (BATCH, SEQUENCE))
        times = [time.perf_counter()]
        graph = ax.capture(model, {"input_ids": tokens, "labels": tokens})
        times.append(time.perf_counter())
        layered = assign_layers(graph, cluster_operators(graph, 1).layer_of_forward)
        stage = build_stage_problem(slice_stages(layered)(0, 0), CostModel(cluster.device, mesh.squeezed()))
        problem = stage.at(inverse_b=1 / NUM_MICROBATCHES, memory_price=0.0, microbatches_held=1)
        times.append(time.perf_counter())
        solution = solve(problem)
        times.append(time.perf_counter())
        capture, build, solved = (b - a for a, b in pairwise(times))
        print(
            f"{layers} layers: {len(graph.operators):,} operators, {len(problem.node_costs):,} nodes, "
            f"{max(map(len, problem.node_costs))} strategies at most, {problem.variables:,} variables of Eq. 1; "
            f"capture {capture:.2f} s, build {build:.2f} s, solve {solved:.2f} s ({solution.status.name.lower()}), all "
            f"{times[-1] - times[0]:.2f} s"
        )


if __name__ == "__main__":
    main()
