"""Distributed training with PyTorch: a drop-in for ``horovod.torch``.

::

    import ringcomm.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""

import ringcomm.torch.version  # noqa: F401  checks before names of newer versions are needed
from ringcomm.accounts import stats
from ringcomm.relaxed.consistency import SSP, Async, Backup, SoftSync, Sync
from ringcomm.torch import distributed, elastic, intraop  # noqa: F401 (intraop has no name that is public)
from ringcomm.torch.compression import Compression, ErrorFeedback
from ringcomm.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ringcomm.torch.mpi_ops import *  # noqa: F403
from ringcomm.torch.mpi_ops import __all__ as _operations
from ringcomm.torch.optimizer import DistributedOptimizer
from ringcomm.torch.relaxed.diloco import DiLoCo
from ringcomm.torch.relaxed.easgd import EASGD
from ringcomm.torch.relaxed.gossip import Gossip
from ringcomm.torch.relaxed.gradient_sharing import GradientSharing
from ringcomm.torch.relaxed.hogwild import Hogwild
from ringcomm.torch.relaxed.local_sgd import LocalSGD
from ringcomm.torch.relaxed.parameter_server import ParameterServer
from ringcomm.torch.sync_batch_norm import SyncBatchNorm
from ringcomm.torch.tensors import empty

__all__ = [
    "EASGD",
    "SSP",
    "Async",
    "Backup",
    "Compression",
    "DiLoCo",
    "DistributedOptimizer",
    "ErrorFeedback",
    "Gossip",
    "GradientSharing",
    "Hogwild",
    "LocalSGD",
    "ParameterServer",
    "SoftSync",
    "Sync",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "distributed",
    "elastic",
    "empty",
    "stats",
    *_operations,
]
