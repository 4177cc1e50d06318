"""Where measured networks are kept: the user's cache directory, a file per machine and topology."""

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

LEAST_BETA = 1e-13  # seconds a byte: what a measurement gives in which longer messages took no longer


def key(topology: Topology) -> dict[str, Any]:
    """What two jobs have in common if one's network is the other's: kind of machine, its MPI, and how ranks lie."""
    vendor, version = mpi_library.load().get_vendor()
    per_host = [len(ranks) for ranks in topology.hosts]
    return {
        "hosts": len(topology.hosts),
        "ranks_per_host": [min(per_host), max(per_host)],
        "machine": re.sub(r"\d+", "#", topology.host_names[0]),  # node17 is as good as node18
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
    """What was measured for this topology; None if nothing was, or it cannot be read."""
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
    """Not disturbed so much, by ranks without a core perhaps, that the rate of links does not show."""
    return all(math.isfinite(value) and value >= 0 for value in network.values()) and network["beta"] != LEAST_BETA


def save(topology: Topology, network: dict[str, float]) -> Path | None:
    """Keeps it for later jobs. None if it cannot be kept, or should not be, which is no error."""
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
