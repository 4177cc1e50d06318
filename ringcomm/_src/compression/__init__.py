"""Compressed formats, as users ask for them."""
