"""The PyTorch binding. Public names are in ringcomm.torch."""
