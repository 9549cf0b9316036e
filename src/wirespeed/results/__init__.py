"""Saved runs: their files, cells, baselines, and what changed between them."""
