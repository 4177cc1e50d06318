"""Elastic training in a rank: states, commits, and the function that restarts after a change of ranks.

`ringcomm.elastic` exports the public names.
"""
