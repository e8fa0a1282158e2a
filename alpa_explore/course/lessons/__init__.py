"""The notebooks of the course as values: what a lesson says of itself, its cells for nbgrader.

notebook   a lesson read from its file: number, title, minutes, goals, prerequisites, cells
sync       the weeks of a course, with essays and their model answers, from a text file; brings what follows from the
           lessons up to date: nbgrader's metadata, tables of index and lecturer's guide

Notebooks are read and written as JSON; nothing here runs one.
"""
