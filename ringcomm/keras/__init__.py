"""Distributed training with Keras 3 on all backends: a drop-in for ``horovod.keras``.

The backends are TensorFlow, PyTorch and JAX.

::

    import ringcomm.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss=...)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(..., callbacks=[broadcast, hvd.callbacks.MetricAverageCallback()])
"""

from ringcomm._src.base.installed import require_framework

require_framework("keras")

from ringcomm._src.keras.backends import Compression  # noqa: E402
from ringcomm._src.keras.functions import (  # noqa: E402
    allgather,
    allgather_object,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
    check_replicas,
    load_model,
    reducescatter,
)
from ringcomm._src.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer  # noqa: E402
from ringcomm._src.named.compression_state import compression_state_dict, load_compression_state_dict  # noqa: E402
from ringcomm._src.named.joining import join  # noqa: E402
from ringcomm._src.named.names import *  # noqa: E402, F403
from ringcomm._src.named.names import __all__ as _names  # noqa: E402
from ringcomm.keras import callbacks, elastic  # noqa: E402

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "check_replicas",
    "compression_state_dict",
    "elastic",
    "join",
    "load_compression_state_dict",
    "load_model",
    "reducescatter",
    *_names,
]
