"""A training run beside its prediction.

steps   while it runs: the loss of each step, and its seconds beside the predicted ones
run     when it is over: predicted and measured seconds of the tasks of each stage, and memory of each rank

Both read what `runtime` reports (`StepReport`, `Measured`). They import keys, marks, style and tuning of the package
above; not decisions, comparisons or the page.
"""
