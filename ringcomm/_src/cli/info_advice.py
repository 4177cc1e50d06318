"""Lists what to fix on a host, in order, for `ringcomm info`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def huge_pages() -> str:
    """Returns the kernel's setting for huge pages in shared memory; "" if it has none."""
    try:
        found = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def advice(facts: Mapping[str, Any]) -> list[str]:
    """Returns what to fix, the item with the largest effect first. `facts`: those of info.gather."""
    return list(_items(facts))


def _items(facts: Mapping[str, Any]) -> Iterator[str]:
    mpi, ranks = facts["mpi"], facts["ranks"]
    most = max(ranks["per_host"].values())
    if not mpi["available"]:
        yield 'MPI cannot be loaded: pip install "ringcomm[mpich]", or load the module of your cluster\'s MPI'
    elif mpi["thread_level"] != "multiple":
        yield (
            f"MPI's thread level is {mpi['thread_level']}, so nothing runs in the background: use an MPI with "
            "THREAD_MULTIPLE, and do not set mpi4py.rc.thread_level"
        )
    if most > 1 and not ranks["shared_memory"]:
        yield f"ranks of a host do not share memory ({ranks['why']}): enlarge /dev/shm, or unset RINGCOMM_SHARED_MEMORY"
    if most > facts["host_cores"]:
        yield (
            f"{most} ranks share {facts['host_cores']} core{'s' * (facts['host_cores'] > 1)}: start at most "
            f"{facts['host_cores']} on this host, or allow the job more cores"
        )
    elif "some ranks share cores" in facts["binding"]:
        yield "the launcher binds several ranks to one core: start the job with ringrun, or with --bind-to core"
    elif most > 1 and facts["binding"].startswith("no: "):
        yield f"ranks are not bound to cores ({facts['binding'].removeprefix('no: ')}): bind them with the launcher"
    if not any(facts["frameworks"][name] for name in ("torch", "tensorflow", "jax")):
        yield 'no framework is installed, only NumPy arrays work: pip install "ringcomm[torch]", [tensorflow] or [jax]'
    if (facts["gpus"] or facts["gpu_routes"]["gpus"]) and not facts["gpu_routes"]["chosen"]:
        yield f"GPU arrays cannot be used: {facts['gpu_routes']['why'] or facts['gpu_routes']['routes']['staging']}"
    if facts["huge_pages"] in ("never", "deny"):
        yield f"large shared arrays have small pages, which cost more faults: as root, echo advise > {HUGE_PAGES}"
