"""Relaxed synchronisation: training methods in which ranks do not synchronise in every step.

This package holds the framework-independent parts: rounds, rules, parameter stores, and the classes
for NumPy arrays. ``ringcomm.torch`` builds its optimizers on it.
"""
