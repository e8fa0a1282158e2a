"""alpa_explore as a session calls it.

- known_plans: the last plans of this process, for a cell that is run again.
- backend: the functions that capture, plan and run; tests replace single ones.
"""
