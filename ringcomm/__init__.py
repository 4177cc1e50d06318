"""ringcomm: collective communication for training, over any MPI.

There are two interfaces::

    comm = ringcomm.Communicator(MPI.COMM_WORLD)  # ordered calls: MPI's semantics, lowest latency
    y = comm.allreduce(x, op=ringcomm.Sum, algorithm="ring")

    ringcomm.init()  # named operations: any order, fused, checked
    h = ringcomm.allreduce_async(g, name="layer1.weight")
    y = ringcomm.synchronize(h)

Framework bindings: ``import ringcomm.torch as hvd``.
"""

from __future__ import annotations

import ringcomm._src.core.extension  # noqa: F401  checks the extension before other modules import it
from ringcomm import algorithms, errors, threads, updates
from ringcomm._src.algorithms.registry import register_algorithm
from ringcomm._src.arrays.device.array import DeviceArray
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import ops
from ringcomm._src.base.ops import *  # noqa: F403
from ringcomm._src.base.version import __version__
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.compression.compression import Compression, Feedback
from ringcomm._src.config.config import Config
from ringcomm._src.core._core import ANY_SOURCE, ANY_TAG, PROC_NULL, MessageRequest, Status
from ringcomm._src.decentralized.averager import ElasticAverager, GossipAverager, OuterStep, PeriodicAverager
from ringcomm._src.decentralized.consistency import SSP, Async, Backup, Consistency, SoftSync, Sync
from ringcomm._src.decentralized.parameter_store import ParameterStore
from ringcomm._src.decentralized.topology import Topology, register_topology
from ringcomm._src.launch.demo import demo
from ringcomm._src.launch.run_function import run
from ringcomm._src.named import collectives, runtime
from ringcomm._src.named.collectives import *  # noqa: F403
from ringcomm._src.named.joining import join
from ringcomm._src.named.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ringcomm._src.named.runtime import *  # noqa: F403
from ringcomm._src.observe.accounts import OperationStats, Stats, stats
from ringcomm.errors import *  # noqa: F403

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "SSP",
    "Async",
    "Backup",
    "Communicator",
    "Compression",
    "Config",
    "Consistency",
    "DeviceArray",
    "ElasticAverager",
    "Feedback",
    "GossipAverager",
    "Handle",
    "MessageRequest",
    "OperationStats",
    "OuterStep",
    "ParameterStore",
    "PeriodicAverager",
    "ProcessSet",
    "SoftSync",
    "Stats",
    "Status",
    "Sync",
    "Topology",
    "__version__",
    "add_process_set",
    "algorithms",
    "demo",
    "errors",
    "global_process_set",
    "join",
    "register_algorithm",
    "register_topology",
    "remove_process_set",
    "run",
    "stats",
    "threads",
    "updates",
    *collectives.__all__,
    *errors.__all__,
    *ops.__all__,
    *runtime.__all__,
]
