"""Fit the figures of devices and software to measured training runs, all at once.

    tuning     spreads of sources, and the constants of the fit
    figures    the figures that are fitted: where each lives, its start, its bounds, what it means
    works      measured runs -> their work, captured in two processes or read from the cache
    stored     values of figures on devices and software, and in the files of presets and profiles
    predicted  the seconds of all runs with any values of the figures
    run_fit    the values that tell the fitted side of the runs best
    record     predictions as the stored record that error bands and figures are made from

Work does not depend on the figures, so it is made once, and a fit prices all runs with it some thousand times.
"""
