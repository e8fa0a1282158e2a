"""A private JupyterLab, a guarded Chromium, and the few verbs a browser test needs (usage: ../README.md)."""
