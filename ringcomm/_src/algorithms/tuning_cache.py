"""Cache of measured network parameters: a file per machine and topology, in the user's cache."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import time
from pathlib import Path
from typing import Any

from ringcomm._src.base.installed import cpu_name
from ringcomm._src.base.version import __version__
from ringcomm._src.config.config import NETWORK
from ringcomm._src.platform import mpi_library
from ringcomm._src.platform.bootstrap import Topology

logger = logging.getLogger("ringcomm")

LEAST_BETA = 1e-13  # seconds per byte: the value of beta if long messages took no more time than short ones


def key(topology: Topology) -> dict[str, Any]:
    """Returns the cache key. Jobs with equal machines, MPI and ranks per host share parameters."""
    vendor, version = mpi_library.load().get_vendor()
    per_host = [len(ranks) for ranks in topology.hosts]
    return {
        "hosts": len(topology.hosts),
        "ranks_per_host": [min(per_host), max(per_host)],
        "machine": re.sub(r"\d+", "#", topology.host_names[0]),  # node17 and node18 share an entry
        "cpu": cpu_name(),
        "mpi": f"{vendor} {'.'.join(map(str, version))}",
    }


def directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ringcomm"


def path(topology: Topology) -> Path:
    text = json.dumps(key(topology), sort_keys=True)
    return directory() / f"network-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.json"


def load(topology: Topology) -> dict[str, float] | None:
    """Returns the cached parameters of this topology; None if no usable file exists."""
    try:
        parameters = json.loads(path(topology).read_text(encoding="utf-8"))["network"]
        network = {name: float(parameters[name]) for name in NETWORK}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.debug("cannot use the cached network parameters: %s", error)
        return None
    return network if _is_plausible(network) else None


def _is_plausible(network: dict[str, float]) -> bool:
    """Returns False if a value is invalid, or if long messages took no longer than short ones."""
    return all(math.isfinite(value) and value >= 0 for value in network.values()) and network["beta"] != LEAST_BETA


def save(topology: Topology, network: dict[str, float]) -> Path | None:
    """Saves the parameters for later jobs. Returns the file; None if nothing could be saved."""
    if not _is_plausible(network):
        return None
    document = {
        "key": key(topology),
        "network": network,
        "units": "seconds, per message or byte",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ringcomm": __version__,
    }
    try:
        file = path(topology)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(file)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        logger.debug("cannot save the measured network parameters: %s", error)
        return None
    return file
