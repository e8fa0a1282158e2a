"""Stage costs: solving every stage the pipeline could have, on Dask, with a cache on disk."""
