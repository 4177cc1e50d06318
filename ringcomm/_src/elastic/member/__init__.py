"""Elastic training in a rank: states, commits, and the function that starts again."""
