"""Qualification of clusters: which nodes, NICs, cables and switches are slow."""
