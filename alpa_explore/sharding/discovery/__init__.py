"""Discovery: the splits of an operator without a rule, established by running it on small random inputs.

Used only for operator kinds that `sharding.rules` does not list. In the order to read them:

    shapes          the operator under test; candidate splits, filtered by output shapes at full size on meta tensors
    trials          smaller sizes that keep equality, order and divisibility; the operator on random numbers of several
                    styles at these, whole and in shards, joined
    tuning          limits of the search
    discover        the public function: shapes, then values in a child process, alone and two at a time

The only packages below it are `sharding.local`, `sharding.strategy`, `sharding.spec`, `tracing.aten` and `graph`; it
must not import `sharding.rules` or `sharding.splits`, which decides between a rule and discovery.
"""
