"""Scattered blocks (a KV cache): which way moves them fastest, measured and modelled."""
