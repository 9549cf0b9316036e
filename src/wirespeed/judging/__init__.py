"""Verdicts on the values of a Document, and the likely causes of low ones."""
