"""Questions beside the plan, answered in the background; the newest one wins, and each can be cancelled.

- questions: changes with which a model fits; settings of a plan that is opened by a click on a mark
- layouts: every uniform layout, and where the model fits; the same for other global batches, while B moves
"""
