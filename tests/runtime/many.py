"""Runs prepared folders one after the other: an agent each, but torch is imported once.

python -m tests.runtime.many FOLDER:RANKS …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.runtime.ranks.agent import Agent

PieceOptimizer("optimizer.adam", torch.zeros(1), 1e-3)
for word in sys.argv[1:]:
    folder, _, ranks = word.rpartition(":")
    agent = Agent(Path(folder), 0, int(ranks), f"file:{folder}/job/store")
    print(json.dumps(agent.run()), flush=True)
