"""The price of one hand-made layout.

architecture    a decoder by its sizes; its config, its FLOPs
stages          the blocks of each part of a pipeline, as each framework divides them
requests        what is asked of the cost model, and its answer
layout_pricer   the answers, by `baselines`
stored_work     the work of a decoder as JSON, for the cache
"""
