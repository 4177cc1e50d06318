"""Kinds of arrays on the host and on GPUs, arrays in shared memory, and handles of operations."""
