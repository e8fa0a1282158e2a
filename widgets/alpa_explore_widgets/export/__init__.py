"""What leaves the explorer.

- sharing: Python code for the settings, names of saved files, and plan files that the user opens.
- saved: the plan as an HTML table, which a saved notebook shows when no kernel is running.

Imports panels (for the sentence about the plan) and session, but no tabs.
"""
