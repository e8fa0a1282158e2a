"""Results on disk.

    cache          a cache of results by key, one file per entry
    code_version   a digest of the code and the libraries that compute cached results
    read           read a file that a stranger may have written; check which keys, and what values, its JSON has
    records        dataclasses as JSON and back, by the types of their fields
    write          write a text file atomically

A key contains everything on which a result depends; with the code version in the key, entries of other code are never
read. Nothing is pickled, so foreign files are harmless. `cache` and `records` read by `read`. This package
must import nothing of alpa_explore but `errors`.

Concepts that others use: SolveCache, Store.
"""
