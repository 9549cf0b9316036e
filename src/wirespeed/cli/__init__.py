"""The command lines: parsing only."""
