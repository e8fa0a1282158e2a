"""Commands that open a browser.

    lab   JupyterLab on the tour
    app   the explorer alone, by voila

The explorer is a package of its own, which is located by name and never imported. Servers listen on 127.0.0.1 only. A
room of commands must not import another one.
"""
