"""ringcomm: collective communication for training, over any MPI.

Two ways in::

    comm = ringcomm.Communicator(MPI.COMM_WORLD)                     # ordered calls: MPI's semantics, lowest latency
    y = comm.allreduce(x, op=ringcomm.Sum, algorithm="ring")

    ringcomm.init()                                                  # named operations: any order, fused, checked
    h = ringcomm.allreduce_async(g, name="layer1.weight")
    y = ringcomm.synchronize(h)

Framework bindings: ``import ringcomm.torch as hvd``.
"""

from __future__ import annotations

import ringcomm.extension  # noqa: F401  checks before the extension is needed
from ringcomm import algorithms, collectives, errors, ops, runtime, threads, updates
from ringcomm._core import ANY_SOURCE, ANY_TAG, PROC_NULL, MessageRequest, Status
from ringcomm.accounts import OperationStats, Stats, stats
from ringcomm.algorithms import register_algorithm
from ringcomm.collectives import *  # noqa: F403
from ringcomm.communicator import Communicator
from ringcomm.compression import Compression, Feedback
from ringcomm.config import Config
from ringcomm.device.array import DeviceArray
from ringcomm.errors import *  # noqa: F403
from ringcomm.handles import Handle
from ringcomm.joining import join
from ringcomm.ops import *  # noqa: F403
from ringcomm.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ringcomm.relaxed.averager import (
    ElasticAverager,
    GossipAverager,
    OuterStep,
    PeriodicAverager,
)
from ringcomm.relaxed.consistency import SSP, Async, Backup, Consistency, SoftSync, Sync
from ringcomm.relaxed.parameter_store import ParameterStore
from ringcomm.run_function import run
from ringcomm.runtime import *  # noqa: F403
from ringcomm.topology import Topology, register_topology
from ringcomm.version import __version__

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
