"""What one device runs for its share of an operator, described without torch.

The proof of the sharding rules, the reference interpreter and the runtime all run what `localize` returns: what is
proven is what runs. In the order to read them:

    steps        Shard: local shapes and block numbers of one device under a strategy; LocalCall: a straight line of
                 operator calls and collectives; the writer that builds one
    synced       statistics of a batch norm over a sharded batch, the divisor of a mean loss; softmax and losses whose
                 classes are sharded
    context      attention on a shard, whose sequence may be divided: ring, zig-zag, Ulysses
    routed       routed experts on a shard: the first of its experts, and who adds the last bias
    local_call   `localize`: which operators need changed arguments on a shard, and how; a scan, whose body runs on the
                 shard

It imports `graph`, `sharding.spec`, `sharding.reshard`, `sharding.strategy`, `sharding.scans` and, for the list of
random operators, `sharding.rules`; it must not import `sharding.discovery`, `sharding.splits` or torch.
"""
