"""Arrays in the memory of GPUs.

This package is imported when the first GPU array is used. It needs only NVIDIA's driver, neither
CuPy nor CUDA's toolkit.
"""
