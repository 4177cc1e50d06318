"""A sampler that records the progress of an epoch, under the name that Horovod gives it."""

from ringcomm._src.torch.elastic.sampler import ElasticSampler

__all__ = [
    "ElasticSampler",
]
