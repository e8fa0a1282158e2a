"""Results on disk.

    cache          a cache of results by key, one file per entry
    code_version   a digest of the code and the libraries that compute cached results
    read           read a file that a stranger may have written
    forms          check which keys, and what kinds of values, its JSON has
    write          write a text file atomically

A key contains everything on which a result depends; with the code version in the key, entries of other code are never
read. Nothing is pickled, so foreign files are harmless. The modules are independent of each other. This package
must import nothing of alpa_explore but `errors`.

Concepts that others use: SolveCache, Store.
"""
