"""Distributed training with TensorFlow: a drop-in for ``horovod.tensorflow``.

::

    import ringcomm.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)             # once, after the first step

Use :mod:`ringcomm.keras` for ``model.fit``.
"""

from typing import Any

from ringcomm._src.base.installed import require_framework

require_framework("tensorflow")

from ringcomm._src.named.compression_state import compression_state_dict, load_compression_state_dict  # noqa: E402
from ringcomm._src.tensorflow.optimizer import DistributedOptimizer  # noqa: E402
from ringcomm._src.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape  # noqa: E402
from ringcomm.tensorflow import elastic  # noqa: E402
from ringcomm.tensorflow.compression import Compression  # noqa: E402
from ringcomm.tensorflow.functions import (  # noqa: E402
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    check_replicas,
)
from ringcomm.tensorflow.mpi_ops import *  # noqa: E402, F403
from ringcomm.tensorflow.mpi_ops import __all__ as _operations  # noqa: E402
from ringcomm.tensorflow.util import (  # noqa: E402, F401  scripts import these from here too
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",  # noqa: F405
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_replicas",
    "compression_state_dict",
    "elastic",
    "load_compression_state_dict",
    *_operations,
]


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # imports Keras only when it is used
        from ringcomm.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
