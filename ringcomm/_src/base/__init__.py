"""Foundations of the other folders: errors, ops, wire formats, argument checks, process roles."""
