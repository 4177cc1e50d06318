"""Handles Horovod's environment variables that are not another name of an option; config.py has those that are.

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
_MODEL = "algorithms are chosen by a model of the network; RINGCOMM_ALGORITHM overrides"
_ONLY_MPI = "all data and control messages go over MPI and shared memory"
_FIXED = "the number of ranks is fixed"
_LAUNCHER = "MPI says which rank this is and where"

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
    "HOROVOD_ADASUM_MPI_CHUNK_SIZE": "pieces are of RINGCOMM_SEGMENT_BYTES",
    "HOROVOD_CPU_OPERATIONS": _ONLY_MPI,
    "HOROVOD_CONTROLLER": _ONLY_MPI,
    "HOROVOD_CCL_CACHE": _ONLY_MPI,
    "HOROVOD_GLOO_IFACE": _ONLY_MPI,
    "HOROVOD_GLOO_TIMEOUT_SECONDS": _ONLY_MPI,
    "HOROVOD_NUM_NCCL_STREAMS": "it concerns NCCL, which this version does not use",
    "HOROVOD_BATCH_D2D_MEMCOPIES": "arrays of GPUs are not fused in a GPU's memory",
    "HOROVOD_ENABLE_ASYNC_COMPLETION": "a stream waits for results of GPU arrays, never the host",
    "HOROVOD_DISABLE_NVTX_RANGES": "there are no NVTX ranges; the timeline shows calls and copies",
    "HOROVOD_ENABLE_XLA_OPS": "XLA's programs hand over the host's memory",
    "HOROVOD_DISABLE_GROUP_FUSION": "the operations of a group run together",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "process sets can always be added and removed",
    "HOROVOD_LOG_HIDE_TIME": "the form of messages is that of Python's logging",
    "HOROVOD_ELASTIC": _FIXED,
    "HOROVOD_ELASTIC_TIMEOUT": _FIXED,
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


def _is_news(name: str, value: str) -> bool:
    """Returns True if the log should mention the variable. False: it is empty, off, set by Horovod's launcher, or
    requests existing behaviour."""
    if value in ("", "0") or IGNORED[name] is _LAUNCHER or name == "HOROVOD_DYNAMIC_PROCESS_SETS":
        return False
    return IGNORED[name] is not _ONLY_MPI or value.lower() != "mpi"


_said: set[str] = set()


def is_on(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return text.strip().lower() in ("on", "true", "yes")


def switched(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options that Horovod's switches set."""
    return dict(setting for name, setting in SWITCHES.items() if is_on(environment.get(name, "")))


def note_ignored(environment: Mapping[str, str]) -> None:
    """Logs which variables of Horovod are set without effect, each once per process."""
    notes = [
        f"{name} ({why})"
        for name, why in IGNORED.items()
        if name not in _said and _is_news(name, environment.get(name, ""))
    ]
    _said.update(name for name in IGNORED if name in environment)
    if notes:
        logger.warning("set, but without effect in ringcomm: %s", "; ".join(notes))
