"""Figures: pure functions from a plan to a plotly Figure, each with a table of the same."""
