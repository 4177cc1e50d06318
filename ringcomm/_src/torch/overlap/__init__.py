"""DistributedOptimizer(overlap_forward=True): reductions overlap with the next forward pass.

`parameter` detects the first use of each parameter after a step. The order of use is that in which
the gradients are reduced (`training.pieces`). `step` is a step of which some gradients are in
flight, and `optimizer` is the optimizer.
"""
