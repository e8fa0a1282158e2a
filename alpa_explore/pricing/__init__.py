"""Pricing: what one stage costs on one submesh, from sharding solves, at every B and within the memory of a device.

Read in this order:

- `stage_costs`: `StageCosts`, the result: candidates for every (layer range, submesh), and tables for the pipeline DP.
- `price_book`: `PriceBook`, what is known of one sharding problem at every B and with every memory; it only grows.
  `Reading` reads it at one B with one memory.
- `tasks`: `run_task`, one search for choices: what it finds is added to the book.
- `sweep`: the choices that are best at a few B and prices of memory, of all layer ranges on one mesh, which are
  composed, or of one problem, which a solver solves.
- `warm_up`: the compiled kernels of composition.
- `tuning`: tolerances and limits.

Which stages are priced, and when, is decided in `search`; pricing must not import `search`, `inter_op`, `plans` or
`execution`.

Concepts that others use: PriceBook, Provenance, RangeKey, Reading, Screened, Search, StageCandidate, StageChoice,
StageCosts, Task.
"""
