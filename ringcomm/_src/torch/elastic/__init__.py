"""Elastic training of PyTorch models. Public names are in ringcomm.torch.elastic."""

from ringcomm._src.elastic.member.running import run
from ringcomm._src.torch.elastic.sampler import ElasticSampler
from ringcomm._src.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]
