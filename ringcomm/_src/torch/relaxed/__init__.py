"""Optimizers that exchange weights or gradients less often than every step, late, or through shared weights."""
