"""A sampler that remembers how far an epoch has come. Named as in Horovod."""

from ringcomm._src.torch.elastic.sampler import ElasticSampler

__all__ = [
    "ElasticSampler",
]
