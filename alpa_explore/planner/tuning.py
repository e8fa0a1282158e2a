"""Limits of the planner. None changes a plan, except the number of layers and what a layer does at the least."""

MOST_LAYERS = 40
"""Of the default layering. Without it models of 44 blocks, and of 45 to 76 whose number has few divisors, would have a
layer for each block, in place of 16 to 24 layers."""
FEW_BLOCKS = 24
"""Up to so many blocks each is a layer."""
MOST_STAGES, USUAL_STAGES = 32, 8
"""Pipelines that the default layering looks at: up to so many stages, or chunks of an interleaved schedule; those with
more than the usual number weigh less."""
FEWEST_LAYERS = USUAL_STAGES
"""Of the default layering: with fewer, a pipeline of the usual number of stages would not exist."""
TAKES_TURNS = 4
"""Submeshes that interleave layers whose number it divides: 28 are 7 for each, 31 cannot be interleaved at all."""
EQUAL_LAYER, ODD_LAYER, UNEQUAL_LAYER = 0.014, 0.024, 0.03
"""What one more layer is worth, as the share by which the longest stage of one pipeline is longer than it need be: of
equal layers that take turns, of other equal ones, and of those that are not equal numbers of blocks. A layer takes 0.3
to 2 % of planning time, and more where they are unequal: Mixtral-8x22B, of 56 blocks, takes 2.3 times as long in 32
layers as in 28 on 64 devices, with a plan that is 19 % slower."""
LEAST_SHARE = 0.25
"""Of the mean FLOPs, in every layer: far less than one of several blocks, far more than an embedding and masks."""
FIT_SECONDS = 20.0
"""How long a larger cluster is sought on which a model fits; after that the answer is a lower bound. Set by hand."""
USUAL_NODE = 8
"""Devices of a common node: a single smaller one is enlarged to this before there are several nodes."""
MOST_NODES = 64
"""Largest number of nodes that is looked at."""
DEVICES_WORTH_WORKERS = 128
"""On so many devices a new plan has meshes enough for worker processes to be started while the model is captured. On
fewer, they are started when the solves turn out to take long: GPT-39B on 64 devices takes 16 s of processor time in one
process and 25 s with two workers, which import and build again what its meshes share."""
