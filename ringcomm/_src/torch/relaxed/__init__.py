"""Optimizers of ranks that do not meet at every step: LocalSGD, DiLoCo and SlowMo, EASGD, gradients one step late."""
