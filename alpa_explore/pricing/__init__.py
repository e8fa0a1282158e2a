"""Pricing: what one stage costs on one submesh, from sharding solves, at every B and within the memory of a device.

Read in this order:

- `stage_costs`: `StageCosts`, the result: candidates for every (layer range, submesh), and tables for the pipeline DP.
- `frontier`: the choices found for one problem, and what is proven about them.
- `mesh_tasks`, `mesh_sweep`: all layer ranges on one mesh, composed, as one task for a worker. The default solver
  prices every range this way that is a chain of blocks; the files below price the others, and all ranges for other
  solvers.
- `stage_tasks`: one stage problem as a task for a worker.
- `explorer`: one stage problem, solved at several prices.
- `envelope`: the fastest choices at every B.
- `memory_frontiers`: leaner, slower choices where the fastest overflows the device.
- `cache_entries`: frontiers as entries of the solve cache.
- `tuning`: tolerances and limits.

Which stages are priced, and when, is decided in `search`; pricing must not import `search`, `inter_op`, `plans` or
`execution`.
"""
