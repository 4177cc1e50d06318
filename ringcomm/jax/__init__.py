"""Distributed training with JAX on CPUs. Each rank is a process that compiles its own programs.

::

    import ringcomm.jax as rc

    rc.init()
    optimizer = rc.distributed(optax.adam(1e-3))
    parameters = rc.broadcast_parameters(parameters, root_rank=0)

    @jax.jit
    def step(parameters, state, batch):
        gradients = jax.grad(loss)(parameters, batch)
        updates, state = optimizer.update(gradients, state, parameters)      # reduces gradients
        return optax.apply_updates(parameters, updates), state
"""

from ringcomm._src.base.installed import require_framework

require_framework("jax")

from ringcomm._src.base.errors import HorovodInternalError  # noqa: E402
from ringcomm._src.base.ops import Adasum, Average, Max, Min, Product, Sum  # noqa: E402
from ringcomm._src.compression.compression import Compression  # noqa: E402
from ringcomm._src.jax.functions import (  # noqa: E402
    allgather,
    allgather_object,
    allreduce,
    allreduce_gradients,
    alltoall,
    broadcast,
    broadcast_object,
    broadcast_parameters,
    distributed,
    grouped_allreduce,
    reducescatter,
)
from ringcomm._src.jax.replicas import check_replicas  # noqa: E402
from ringcomm._src.named.collectives import barrier  # noqa: E402
from ringcomm._src.named.compression_state import compression_state_dict, load_compression_state_dict  # noqa: E402
from ringcomm._src.named.joining import join  # noqa: E402
from ringcomm._src.named.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set  # noqa: E402
from ringcomm._src.named.runtime import (  # noqa: E402
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ringcomm.jax import elastic  # noqa: E402

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_gradients",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "check_replicas",
    "compression_state_dict",
    "cross_rank",
    "cross_size",
    "distributed",
    "elastic",
    "global_process_set",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "join",
    "load_compression_state_dict",
    "local_rank",
    "local_size",
    "rank",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
]
