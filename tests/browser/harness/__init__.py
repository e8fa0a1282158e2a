"""What a browser test needs: a private JupyterLab, a Chromium that may not leave the machine, and pages to act on.

- server: JupyterLab and `alpa-explore app` with an empty home folder; alone: one of them for scripts.
- chromium: finds and starts Debian's Chromium.
- guard: records requests to other machines and errors of the page.
- page: opens a notebook, runs it, reads its outputs and figures; explorer: finds the explorer on a page.
"""
