"""Arrays in the memory of GPUs. It is imported when the first such array is used.

It needs NVIDIA's driver only, no CuPy and no toolkit.
"""
