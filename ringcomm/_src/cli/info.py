"""Implements `ringcomm info`: lists installed software, and why features are on or off."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from typing import Any

from ringcomm._src.base.installed import BINDINGS, FRAMEWORKS, cpu_name, exists, framework_version
from ringcomm._src.cli import info_advice
from ringcomm._src.platform import binding
from ringcomm._src.platform.mpi_library import library_path, load

WIDTH = 100  # characters of a line of text
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    facts = gather()
    if facts.pop("rank") == 0:
        print(json.dumps(facts, indent=2) if options.json else "\n".join(lines(facts)))
    return 0


def gather() -> dict[str, Any]:
    """Returns all facts as plain data; the entry "rank" is this rank. Collective under a launcher."""
    from ringcomm import __version__
    from ringcomm._src.core import _core

    facts: dict[str, Any] = {
        "rank": 0,
        "version": __version__,
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_set": _core.instruction_set(),
        "mpi": mpi_facts(),
        "frameworks": {name: framework_version(name) for name in FRAMEWORKS},
        "gpus": gpu_names(),
        "wire_formats": [*_core.wire_formats(), "powersgd"],
    }
    facts["ranks"] = rank_facts(facts["mpi"])
    facts["rank"], facts["gpu_routes"] = facts["ranks"].pop("rank"), facts["ranks"].pop("gpu_routes")
    facts["binding"] = binding.state
    facts["host_cores"], facts["huge_pages"] = facts["ranks"].pop("host_cores"), info_advice.huge_pages()
    facts["enabled"] = enabled(facts) if facts["rank"] == 0 else {}  # only rank 0 prints
    facts["advice"] = info_advice.advice(facts)
    return facts


# ---- one fact each ---------------------------------------------------------------------------------------------------


def gpu_names() -> list[str]:
    """Returns the GPUs that nvidia-smi lists; empty without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        result = subprocess.run(
            [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in result.stdout.splitlines() if line.strip()] if result.returncode == 0 else []


def gpu_facts(comm: Any = None) -> dict[str, Any]:
    """Returns the number of GPUs that the driver reports, and the routes of their arrays.

    The text of a route is "" if the route can be used, else the reason why not. Collective if there
    is a communicator.
    """
    from ringcomm._src.arrays.device import devices, routes

    listed = routes.all_routes(comm)
    number, why = devices.count_or_reason()
    return {"gpus": number, "why": why, "chosen": routes.first_available(listed), "routes": dict(listed)}


def gpu_buffers(gpus: dict[str, Any]) -> tuple[bool, str]:
    if not gpus["chosen"]:
        return False, gpus["why"] or gpus["routes"]["staging"]
    others = "; ".join(f"not {name}: {why}" for name, why in gpus["routes"].items() if why)
    return True, f"{gpus['gpus']} on this host, route {gpus['chosen']}" + (f" ({others})" if others else "")


def mpi_facts() -> dict[str, Any]:
    """Returns facts about the MPI that mpi4py loads, or the reason why it loads none."""
    try:
        MPI = load()
    except ImportError as error:
        return {"available": False, "why": " ".join(str(error).split())}
    vendor, version = MPI.get_vendor()
    return {
        "available": True,
        "vendor": vendor,
        "version": ".".join(map(str, version)),
        "library": " ".join(MPI.Get_library_version().strip("\0 \n").splitlines()[0].split()),
        "path": library_path(str(MPI.__file__)),
        "standard": ".".join(map(str, MPI.Get_version())),
        "thread_level": {getattr(MPI, f"THREAD_{name.upper()}"): name for name in THREAD_LEVELS}[MPI.Query_thread()],
        "mpi4py": importlib.metadata.version("mpi4py"),
    }


def rank_facts(mpi: dict[str, Any]) -> dict[str, Any]:
    """Returns the ranks per host, and whether ranks of a host share memory. Collective."""
    if not mpi["available"]:
        alone = {"rank": 0, "size": 1, "per_host": {platform.node(): 1}, "shared_memory": False, "why": "no MPI"}
        return alone | {"gpu_routes": gpu_facts(), "host_cores": len(binding.allowed())}
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    per_host = Counter(world.allgather(platform.node()))
    host = platform.node()
    cores = {core for name, own in world.allgather((host, binding.allowed())) if name == host for core in own}
    facts: dict[str, Any] = {"rank": world.rank, "size": world.size, "per_host": dict(per_host)}
    facts["host_cores"] = len(cores)
    comm = ringcomm.Communicator(world)
    try:
        facts |= {"shared_memory": comm.shared_memory, "why": comm.shared_memory_reason}
        facts["gpu_routes"] = gpu_facts(comm)
    finally:
        comm.close()
    return facts


# ---- what is enabled -------------------------------------------------------------------------------------------------


def enabled(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns {"on": bool, "why": text} for each feature."""
    mpi, ranks = facts["mpi"], facts["ranks"]
    threaded, several = mpi.get("thread_level") == "multiple", len(ranks["per_host"]) > 1
    limited = "MPI provides less than THREAD_MULTIPLE: operations progress on the calling thread"
    table: dict[str, tuple[bool, str]] = {
        "messages over MPI": (mpi["available"], mpi.get("why", "")),
        "background worker": (threaded, "" if threaded else limited if mpi["available"] else "no MPI"),
        "shared memory in the host": (bool(ranks["shared_memory"]), ranks["why"] or ""),
        "gradients made in shared memory": gradients_made_shared(facts),
        "compression": (several, "" if several else "one host: only formats with everywhere=True encode data"),
    }
    for name, module in BINDINGS.items():
        installed, bound = facts["frameworks"][name] is not None, exists(module)
        why = "" if installed and bound else f"{name} is not installed" if bound else f"ringcomm has no {module}"
        table[module] = (installed and bound, why)
    table["GPU buffers"] = gpu_buffers(facts["gpu_routes"])
    return {name: {"on": on, "why": why} for name, (on, why) in table.items()}


def gradients_made_shared(facts: dict[str, Any]) -> tuple[bool, str]:
    """Returns True if torch can allocate gradients in shared memory, else False and the reason.

    Runs a separate process, because torch takes long to load.
    """
    if facts["frameworks"]["torch"] is None:
        return False, "torch is not installed"
    if not facts["ranks"]["shared_memory"]:
        return False, "the ranks do not share memory"
    result = subprocess.run(
        [sys.executable, "-m", "ringcomm._src.torch.shared_gradients"], capture_output=True, text=True, timeout=120
    )
    if result.returncode:
        return False, (result.stderr.strip().splitlines() or ["the test of torch failed without a message"])[-1]
    why = json.loads(result.stdout)
    return not why, why


def paragraph(head: str, text: str) -> list[str]:
    """Returns head and text in lines of at most WIDTH characters, indented below the text's begin."""
    style: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), **style) or [head]


def lines(facts: dict[str, Any]) -> list[str]:
    """Returns the facts as lines of text."""
    mpi, ranks = facts["mpi"], facts["ranks"]
    rows = [
        ("ringcomm", f"{facts['version']}, Python {facts['python']} ({sys.executable})"),
        ("CPU", f"{facts['cpu']}, {facts['cores']} usable cores, kernels: {facts['instruction_set']}"),
    ]
    if mpi["available"]:
        rows += [
            ("MPI", f"{mpi['vendor']} {mpi['version']} (MPI {mpi['standard']}), thread level {mpi['thread_level']}"),
            ("  library", mpi["library"]),
            ("  file", mpi["path"] or "unknown"),
            ("  mpi4py", mpi["mpi4py"]),
        ]
    else:
        rows.append(("MPI", f"none: {mpi['why']}"))
    hosts = ", ".join(f"{host}: {count}" for host, count in ranks["per_host"].items())
    rows.append(("ranks", f"{ranks['size']} ({hosts})"))
    rows.append(("ranks are bound", facts["binding"]))
    rows += [(name, version or "not installed") for name, version in facts["frameworks"].items()]
    rows.append(("wire formats", ", ".join(facts["wire_formats"])))
    rows.append(("GPUs", "; ".join(facts["gpus"]) or f"{facts['gpu_routes']['gpus'] or 'none'}"))
    width = max(len(name) for name, _ in rows)
    text = [line for name, value in rows for line in paragraph(f"{name:<{width}}  ", value)]
    text.append("enabled")
    for name, state in facts["enabled"].items():
        text += paragraph(f"  [{'x' if state['on'] else ' '}] ", name + (f": {state['why']}" if state["why"] else ""))
    if facts["advice"]:
        text += ["to fix, in this order", *(f"  {number}. {item}" for number, item in enumerate(facts["advice"], 1))]
    if ranks["size"] == 1:
        text.append("ringrun -np 2 ringcomm info also checks shared memory and binding")
    return text
