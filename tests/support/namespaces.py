"""Hosts of a job on this machine: checks for network namespaces, and creates them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster import BRIDGE, NETMODS, NETWORK, Cluster, mpi_kind

__all__ = ["BRIDGE", "NETMODS", "NETWORK", "Cluster", "missing", "mpi_kind"]


@functools.cache
def missing() -> str:
    """Returns the reason why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in ("ip", "tc", "unshare", "nsenter") if shutil.which(name) is None]
    if absent:
        return f"network namespaces need iproute2 and util-linux: no {', '.join(absent)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""
