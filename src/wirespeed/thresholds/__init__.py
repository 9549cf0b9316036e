"""The table of the numbers that decide verdicts, causes and changes, in the file of their subject. Above each
stand what it separates, why it is this number, and its source, if it was not chosen; behind it is its unit.
"""
