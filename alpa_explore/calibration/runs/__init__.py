"""Fit the figures of devices and software to measured training runs, all at once.

    tuning     spreads of sources, and the constants of the fit
    figures    the figures that are fitted: where each lives, its start, its bounds, what it means
    works      measured runs -> their work, captured in two processes or read from the cache
    overlay    values of figures on devices and software
    predicted  the seconds of all runs with any values of the figures
    run_fit    the values that tell the fitted side of the runs best
    written    from fitted values to the files of presets and profiles

Work does not depend on the figures, so it is made once, and a fit prices all runs with it some thousand times.
"""
