"""Foundations of all other folders: errors, reductions, wire formats, argument checks, and facts about the process."""
