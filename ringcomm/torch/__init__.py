"""Distributed training with PyTorch: a drop-in for ``horovod.torch``.

::

    import ringcomm.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""

import ringcomm._src.torch.version  # noqa: F401  checks torch's version before newer names of torch are imported
from ringcomm._src.decentralized.consistency import SSP, Async, Backup, SoftSync, Sync
from ringcomm._src.observe.accounts import stats
from ringcomm._src.torch import intraop  # noqa: F401 (intraop has no public names)
from ringcomm._src.torch.relaxed.diloco import DiLoCo
from ringcomm._src.torch.relaxed.easgd import EASGD
from ringcomm._src.torch.relaxed.gossip import Gossip
from ringcomm._src.torch.relaxed.gradient_sharing import GradientSharing
from ringcomm._src.torch.relaxed.hogwild import Hogwild
from ringcomm._src.torch.relaxed.local_sgd import LocalSGD
from ringcomm._src.torch.relaxed.parameter_server import ParameterServer
from ringcomm._src.torch.tensors import empty
from ringcomm.torch import distributed, elastic
from ringcomm.torch.compression import Compression, ErrorFeedback
from ringcomm.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from ringcomm.torch.mpi_ops import *  # noqa: F403
from ringcomm.torch.mpi_ops import __all__ as _operations
from ringcomm.torch.optimizer import DistributedOptimizer
from ringcomm.torch.sync_batch_norm import SyncBatchNorm

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
