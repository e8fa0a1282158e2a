"""Commands that list what is built in: `models` (the catalogue) and `clusters` (the device presets).

A room of commands must not import another one.
"""
