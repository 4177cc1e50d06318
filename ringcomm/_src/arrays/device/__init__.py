"""GPUs: arrays in their memory. Imported when the first such array comes; needs no CuPy and no toolkit, only the
driver."""
