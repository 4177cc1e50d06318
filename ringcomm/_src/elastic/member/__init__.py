"""Elastic training in a rank: states, commits, and the function that a change of ranks restarts.

`ringcomm.elastic` exports the public names.
"""
