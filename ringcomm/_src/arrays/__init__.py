"""Kinds of arrays, on the host and on GPUs; shared memory; handles of operations."""
