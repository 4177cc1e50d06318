"""Optimizers that exchange weights or gradients rarely, late, or through shared weights."""
