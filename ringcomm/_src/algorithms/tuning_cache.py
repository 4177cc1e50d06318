"""Cache of measured network parameters: one file per machine and topology in the user's cache directory."""

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

LEAST_BETA = 1e-13  # seconds per byte: the result if longer messages took no more time than short ones


def key(topology: Topology) -> dict[str, Any]:
    """Returns the cache key: jobs with equal machines, MPI and distribution of ranks share their parameters."""
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
    """Returns the cached parameters of this topology; None if there are none, or they cannot be read."""
    try:
        kept = json.loads(path(topology).read_text(encoding="utf-8"))["network"]
        network = {name: float(kept[name]) for name in NETWORK}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.debug("what was measured of the network cannot be used: %s", error)
        return None
    return network if _is_sound(network) else None


def _is_sound(network: dict[str, float]) -> bool:
    """Returns False for a measurement so disturbed, such as by oversubscribed cores, that it shows no bandwidth."""
    return all(math.isfinite(value) and value >= 0 for value in network.values()) and network["beta"] != LEAST_BETA


def save(topology: Topology, network: dict[str, float]) -> Path | None:
    """Saves the parameters for later jobs. Returns the file; None if they are unusable or cannot be written."""
    if not _is_sound(network):
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
        draft = file.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(file)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        logger.debug("what was measured of the network is not kept: %s", error)
        return None
    return file
