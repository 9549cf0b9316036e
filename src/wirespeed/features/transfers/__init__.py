"""A language for transfers that start together: lines, files, and those of other tools.

A line or a file becomes Testcases, which plan Measurements like all others.
"""
