"""The torch.distributed backend. Public names are in ringcomm.torch.distributed."""
