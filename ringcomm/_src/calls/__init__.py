"""Builders of the core's requests from the arguments of Python calls."""
