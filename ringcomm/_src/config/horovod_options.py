"""Handles Horovod's environment variables that are not another name of an option in config.py.

Some are switches that set an option to a fixed value. The rest are accepted without effect, and a
log message names them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("ringcomm")


# Switches, and the option and value that each sets. A number above 0 is "on", as in Horovod.
SWITCHES: dict[str, tuple[str, Any]] = {
    "HOROVOD_STALL_CHECK_DISABLE": ("stall_warn_seconds", 0.0),
    "HOROVOD_MPI_THREADS_DISABLE": ("mpi_threads", False),
}

_NO_CYCLES = "there are no cycles: the worker sleeps until an operation is submitted"
_MODEL = "a model of the network chooses algorithms; RINGCOMM_ALGORITHM overrides it"
_ONLY_MPI = "all data and control messages use MPI and shared memory"
_ELASTIC = "ringrun's options configure elastic jobs"
_LAUNCHER = "MPI provides ranks, sizes and hosts"

# Variables that are accepted without effect, with the reason.
IGNORED: dict[str, str] = {
    "HOROVOD_CYCLE_TIME": _NO_CYCLES,
    "HOROVOD_AUTOTUNE": _MODEL,
    "HOROVOD_AUTOTUNE_LOG": _MODEL,
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": _MODEL,
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": _MODEL,
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": _MODEL,
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": _MODEL,
    "HOROVOD_HIERARCHICAL_ALLREDUCE": _MODEL,
    "HOROVOD_HIERARCHICAL_ALLGATHER": _MODEL,
    "HOROVOD_TORUS_ALLREDUCE": _MODEL,
    "HOROVOD_ADASUM_MPI_CHUNK_SIZE": "RINGCOMM_SEGMENT_BYTES sets the size of segments",
    "HOROVOD_CPU_OPERATIONS": _ONLY_MPI,
    "HOROVOD_CONTROLLER": _ONLY_MPI,
    "HOROVOD_CCL_CACHE": _ONLY_MPI,
    "HOROVOD_GLOO_IFACE": _ONLY_MPI,
    "HOROVOD_GLOO_TIMEOUT_SECONDS": _ONLY_MPI,
    "HOROVOD_NUM_NCCL_STREAMS": "each NCCL call uses one stream",
    "HOROVOD_BATCH_D2D_MEMCOPIES": "GPU arrays are not fused in GPU memory",
    "HOROVOD_ENABLE_ASYNC_COMPLETION": "streams wait for the results of GPU arrays, and the host does not",
    "HOROVOD_DISABLE_NVTX_RANGES": "there are no NVTX ranges; the timeline shows calls and copies",
    "HOROVOD_ENABLE_XLA_OPS": "XLA programs pass arrays in host memory",
    "HOROVOD_DISABLE_GROUP_FUSION": "the operations of a group always run together",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "process sets can always be added and removed",
    "HOROVOD_LOG_HIDE_TIME": "Python's logging module formats the messages",
    "HOROVOD_ELASTIC": _ELASTIC,
    "HOROVOD_ELASTIC_TIMEOUT": "only ringrun uses it, as the default of --elastic-timeout",
    "HOROVOD_RANK": _LAUNCHER,
    "HOROVOD_SIZE": _LAUNCHER,
    "HOROVOD_LOCAL_RANK": _LAUNCHER,
    "HOROVOD_LOCAL_SIZE": _LAUNCHER,
    "HOROVOD_CROSS_RANK": _LAUNCHER,
    "HOROVOD_CROSS_SIZE": _LAUNCHER,
    "HOROVOD_HOSTNAME": _LAUNCHER,
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": _LAUNCHER,
    "HOROVOD_GLOO_RENDEZVOUS_PORT": _LAUNCHER,
}


def _should_log(name: str, value: str) -> bool:
    """Returns True if the log should mention the variable.

    False: it is empty, off, set by Horovod's launcher, or requests existing behaviour.
    """
    if value in ("", "0") or IGNORED[name] is _LAUNCHER or name == "HOROVOD_DYNAMIC_PROCESS_SETS":
        return False
    return IGNORED[name] is not _ONLY_MPI or value.lower() != "mpi"


_logged: set[str] = set()


def is_on(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return text.strip().lower() in ("on", "true", "yes")


def switch_values(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options that Horovod's switches set."""
    return dict(setting for name, setting in SWITCHES.items() if is_on(environment.get(name, "")))


def log_ignored(environment: Mapping[str, str]) -> None:
    """Logs which variables of Horovod are set without effect, each once per process."""
    notes = [
        f"{name} ({why})"
        for name, why in IGNORED.items()
        if name not in _logged and _should_log(name, environment.get(name, ""))
    ]
    _logged.update(name for name in IGNORED if name in environment)
    if notes:
        logger.warning("Horovod's variables without effect in ringcomm: %s", "; ".join(notes))
