"""Common parts of benchmarks, besides cli/measured.py: pinning, ratios, results as JSON."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringcomm._src.cli import measured
from ringcomm._src.cli.measured import interval

RESULTS = Path(__file__).resolve().parent / "results"
DIGITS = 5  # significant digits of a time
USABLE_CORES = len(os.sched_getaffinity(0))  # before this rank is pinned


def pin(rank: int) -> None:
    """Pins this rank to one core; ranks take the usable cores in turn."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Returns median(over) / median(under) of the same turns, and a 95 % bootstrap interval."""
    return interval(lambda of: of("over") / of("under"), {"over": over, "under": under})


def machine() -> dict[str, Any]:
    """Returns the machine's properties, to judge the results. In a rank, it starts MPI."""
    return measured.machine() | {"usable_cores": USABLE_CORES}


def mpi_name(mpi: str) -> str:
    """Returns the name and version in an MPI's description: "MPICH 5.0.2", "Open MPI 5.0.11"."""
    return re.sub(r" Version:? *| v(?=\d)", " ", mpi.split(",")[0]).strip()


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, document: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    measured.write_json(file, _rounded(document))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Returns the number of errors, their mean and the largest."""
    return {"rows": len(errors), "mean": statistics.fmean(errors), "largest": max(errors)}


def write_merged(file: Path, results: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    """Writes results into `file`, in place of earlier ones with equal `keys`."""
    kept = read(file)["results"] if file.exists() else []
    new = {tuple(str(result[key]) for key in keys): result for result in results}
    merged = [new.pop(tuple(str(result[key]) for key in keys), result) for result in kept]
    write(file, {"results": merged + list(new.values())})
