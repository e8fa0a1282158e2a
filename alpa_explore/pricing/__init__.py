"""Pricing: what one stage costs on one submesh, from sharding solves, for every B and within any device memory.

Read in this order:

- `stage_costs`: `StageCosts`, the result: candidates for every (layer range, submesh), and tables for the pipeline DP.
- `frontier`: the choices found for one problem, and what is proven about them.
- `explorer`: one stage problem, solved at several prices.
- `envelope`: the fastest choices for every B.
- `memory_frontiers`: leaner, slower choices where the fastest overflows the device.
- `stage_tasks`: one stage problem as a task for a worker.
- `mesh_sweep`, `mesh_tasks`: all layer ranges on one mesh, composed, as a task for a worker.
- `cache_entries`: frontiers as entries of the solve cache.
- `tuning`: tolerances and limits.

Which stages are priced, and when, is decided in `search`; pricing must not import `search`, `inter_op`, `plans` or
`execution`.
"""
