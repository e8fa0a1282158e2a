"""Tuning constants of this room. None of them can make an answer wrong."""

FOLLOWER_GROWTH = 1
"""A follower with more than two edges is merged only into a node with at most this many times its strategies. Set by
hand."""
DOMINANCE_WORK = 2_000_000
"""Nodes that would take more comparisons of entries are not tested for dominated strategies. Set by hand: all of the
largest public problem of the contest took 40 s, with this cap it takes two."""
DOMINANCE_AMOUNTS = 16
"""Distinct amounts of an item that this estimate counts. Set by hand."""
DOMINANCE_ROUNDS = 4
"""Passes over the nodes that changed. Set by hand."""

ROUND_SHARE = 0.1
"""Share of the time that a round takes at most. Set by hand."""
MOST_SWEEPS = 200
"""A round is not longer than so many moves of every node in trees: small problems gain more by another round. Set by
hand."""
SHORTEST_ROUND_SECONDS = 0.2
"""A round is not shorter than this. Set by hand."""
MESSAGE_SHARE = 0.5
"""Share of a round after which no pass of messages begins. Set by hand."""
FIRST_PASSES, PASSES = 90, 30
"""Passes of messages at the most in the first round and in the others. Set by hand."""
NOISE = 0.1
"""Noise on the costs in all rounds but the first, in mean costs of a node. Set by hand: on K of the contest 0.03
ends 0.3 % lower than 0.3, on V 7 % higher."""
HOT, COLD = 0.003, 0.0003
"""Temperatures at the beginning and the end of an annealing, in mean costs of a node. Set by hand."""
FIRST_PRICE_RATE, PRICE_RATE = 1.0, 0.1
"""By how much the logarithm of a price changes at the most in the first pass, and from the second round on. Set by
hand."""
FIRST_PRICE_SHARE = 0.1
"""What the room at all times costs at the first prices, as a share of the first cost. Set by hand."""
LEAST_PRICE_SHARE = 1e-9
"""No price is below this share of the highest: it could not rise again. Set by hand."""
LEAST_ROOM_SHARE = 1e-3
"""Room below this share of the largest counts as this much where an overflow is compared with it. Set by hand."""
FORBIDDEN_FACTOR = 10.0
"""What a forbidden entry counts in the annealing, in the largest legal entries. Set by hand."""
SINGLES = 3.0
"""Moves of single nodes for every node that was in a tree. Set by hand."""
NOISE_QUANTILES = 8192
"""Values of the noise on the strategies of trees; a power of two."""
LEAST_CEILING = 1.0
"""A forbidden entry counts FORBIDDEN_FACTOR times this at the least. Set by hand."""
CHAIN_SHARE = 0.3
"""Chains for every node that was in a tree. Set by hand, before rounds began with messages: without chains the widest
public problem ended 15 % dearer."""
LONGEST_CHAIN = 40
"""Changes of a chain at most. Set by hand."""
LARGEST_TREE = 60
"""Nodes that a tree has at most. Set by hand, before rounds began with messages: on the largest public problem of the
contest 20 and 300 were worse."""
LONGEST_TREE_REPAIR = 10
"""Nodes that give way at most where a tree does not keep the limit. Set by hand."""
SAMPLES, REPAIR_SAMPLES = 20, 200
"""Nodes looked at for the one that gives way, in a chain and in a repair. Set by hand."""
MOST_REPAIRS = 100_000
"""Changes of a repair at most. Set by hand."""
FIRST_MOVES, LEAST_MOVES = 200, 20
"""Moves of the first slice, and of any. Set by hand."""
SLICE_SECONDS = 0.04
"""Time of a slice: the prices and the temperature change after each. Set by hand."""

ANYTIME_SECONDS = 60.0
"""Time for a problem with a memory limit that is too large for an ILP, where no time limit is given. Set by hand."""
CONDENSE_SHARE = 0.25
"""Share of the time that condensing may take. Set by hand."""
BOUND_SHARE, LARGE_BOUND_SHARE = 0.3, 0.15
"""Share of the time after it that the bound may take, in a thread of its own; the second where the bound is unlikely to
be reached, and the thread serves better in the annealing. Set by hand."""
BOUNDED_VARIABLES = 500_000
"""Variables of the condensed problem up to which the first is given. Set by hand."""
LEAVING_SECONDS = 5.0
"""The end of Python waits this long for the current step of a search that is over. Set by hand."""
WAKE_SECONDS = 0.2
"""How long Ctrl-C may wait where the system hands it to a thread that computes."""
CLOSING_FACTOR = 8.0
"""The answer is restored and checked in this many times the time of one evaluation of the condensed problem. Set by
hand."""
PROVEN_GAP = 1e-9
"""Relative gap that is rounding."""
ILP_VARIABLES = 100_000
"""Variables up to which HiGHS tries to prove the answer beside the annealing. Set by hand."""
PROOF_SHARE = 0.4
"""Share of the remaining time that it is given: it may take twice as long, as it looks at the clock rarely. Set by
hand."""
EASY_VARIABLES, EASY_PROOF_SHARE = 20_000, 0.9
"""Up to so many variables it looks at the clock more often, and is given this share. Set by hand."""

MAX_JSON_BYTES = 2 * 2**30
"""Bytes of the JSON text after decompression; the largest public problem of the contest has 99 MB."""
MEMORY_FACTOR = 10
"""Free memory that reading and solving need at the most, in bytes of the text. Set by hand: the largest public problem
of the contest takes 6."""
READ_BYTES_A_SECOND = 35e6
"""Bytes of the text that one core reads in a second. Set by hand."""
MAX_TIME = 10**7
"""No interval may end later: the memory profile has an entry for every time."""

WARM_UP_ROUNDS, WARM_UP_SECONDS = 4, 0.4
"""Calls that compile every kernel of the search within a memory limit, and the time limit of each. Set by hand: after
two rounds every kernel was on disk."""

LEAST_LIMIT_SECONDS = 30.0
"""Time limit for computing the smallest feasible memory limit of an infeasible problem. Set by hand; not measured."""
LEAST_REASON_SECONDS = 1.0
"""It is looked for this long even where no time is left. Set by hand."""
REASON_VARIABLES = 300_000
"""Variables of Eq. 1 up to which the reason is computed exactly. Set by hand: with 2.7 million it took more than two
minutes."""
