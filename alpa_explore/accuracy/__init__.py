"""How good the predictions are: every measured run beside what the cost model says of it, and the error bands.

In the order to read them:

    measured_run   a training run that somebody measured, and its prediction
    record         all of them, stored in `data/`; `benchmarks/validate.py --store` writes the file
    scores         errors, bias, order and memory of a set of runs
    choices        of the layouts of one model on one number of GPUs: is the one predicted to be best the best?
    weak_spots     the kinds of runs that are predicted worst, and why
    likeness       which runs are like a predicted case: software, precision, experts, size, share of overhead
    error_band     the error to expect of a prediction: that of runs like it which no figure was fitted to;
                   whether what fits in memory fits with that error, in what a device really offers
    tuning         how many runs make a band

It is plain arithmetic on stored figures: nothing is predicted here, and no torch is loaded. It imports `cluster` only,
so that reports, figures and the explorer can say how far to trust a number.

Concepts that others use: Band, Case, Choice, Errors, MeasuredRun, Quantity, Record, Score, Source, WeakSpot.
"""
