"""Commands that list what is built in: `models` (the catalogue), `clusters` (the device presets), and `validation`
(measured runs beside their predictions).

A room of commands must not import another one.
"""
