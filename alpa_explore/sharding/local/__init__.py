"""What one device runs for its share of an operator, described without torch.

The proof of the sharding rules, the reference interpreter and the runtime all run what `localize` returns: what is
proven is what runs. In the order to read them:

    steps        LocalCall: a straight line of operator calls and collectives; the writer that builds one
    shard        the local shapes and block numbers of one device under a strategy
    batch_norm   its statistics over a sharded batch
    losses       the divisor of a mean loss over a sharded batch; softmax and losses whose classes are sharded
    context      attention on a shard, whose sequence may be divided: ring, zig-zag, Ulysses
    routed       routed experts on a shard: the first of its experts, and who adds the last bias
    scan         a scan on a shard: its body, operator by operator
    local_call   `localize`: which operators need changed arguments on a shard, and how

It imports `graph`, `sharding.spec`, `sharding.reshard`, `sharding.strategy`, `sharding.scans` and, for the list of
random operators, `sharding.rules`; it must not import `sharding.discovery`, `sharding.splits` or torch.
"""
