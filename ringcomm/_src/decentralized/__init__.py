"""Relaxed synchronisation: ranks that do not meet at every step. What is in it of no framework: rounds, rules, and the
forms for NumPy arrays. Torch's optimizers are in ``ringcomm.torch``."""
