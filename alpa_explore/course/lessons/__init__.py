"""The notebooks of the course as values: what a lesson says of itself, its cells for nbgrader.

notebook   a lesson read from its file: number, title, minutes, goals, prerequisites, cells
sync       brings what follows from the lessons up to date: nbgrader's metadata, and the table in index.ipynb

Notebooks are read and written as JSON; nothing here runs one.
"""
