"""The notebooks of the course as values: what a lesson says of itself, its structure, its cells for nbgrader.

notebook   a lesson read from its file: number, title, minutes, goals, prerequisites, cells
structure  the headings that every lesson has, in their order, and what stands under each
nbgrader   the metadata of exercise cells
index      the table of the lessons in index.ipynb
sync       brings what follows from the lessons up to date: the metadata and the table

Notebooks are read and written as JSON; nothing here runs one.
"""
