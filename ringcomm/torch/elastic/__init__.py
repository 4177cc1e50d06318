"""What elastic training needs of its data: a sampler that remembers how far an epoch has come."""

from ringcomm.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
