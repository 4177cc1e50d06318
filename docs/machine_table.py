"""Makes the table of docs/benchmarks.md that compares machines; write_benchmarks.py fills it in.

Each machine has a folder of results: benchmarks/results, and benchmarks/results/amd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import measure

FOLDERS = (measure.RESULTS, measure.RESULTS / "amd")
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}
MODELS = {
    "mlp": "an MLP",
    "deep": "100 layers of 32 × 32",
    "gpt": "a GPT",
    "resnet": "a ResNet-18",
    "recommender": "a recommender",
}
KB = 1024


def _of_two_ranks(folder: Path, name: str, kind: str) -> dict[str, Any]:
    found = measure.read(folder / f"{name}.json")["results"]
    return next(one for one in found if (one["kind"], one["ranks"]) == (kind, 2))


def _span(values: Iterable[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[0]:.2f} to {ordered[-1]:.2f}"


def _arrays(folder: Path, kind: str, name: str, least: int, most: int) -> str:
    """Returns the range over sizes of MPI's time over ours."""
    peer = "mpi in place" if name == "in place" else "mpi"
    rows = _of_two_ranks(folder, "host_allreduce", kind)["rows"]
    times = [row["seconds"] for row in rows if least <= row["nbytes"] <= most]
    return _span(measure.ratio(seconds[peer], seconds[name])[0] for seconds in times)


def _collective(folder: Path, kind: str, name: str) -> str:
    rows = _of_two_ranks(folder, "collectives", kind)["rows"][name]
    speeds = [row["speedup"] for row in rows if row["algorithm"] == "auto"]
    return f"{speeds[0]:.2f}" if len(speeds) == 1 else _span(speeds)


def _step(folder: Path, kind: str) -> str:
    one = measure.read(folder / f"training_step_{kind}.json")
    return f"{one['ratio']:.2f}; {one['over_alone'][0]:.2f}"


def _named(folder: Path, kind: str) -> str:
    ratios = measure.read(folder / f"named_gradients_{kind}.json")["ratios"]
    return f"{ratios['mpi over named'][0]:.2f}"


def _model(folder: Path, name: str) -> str:
    try:
        rows = _of_two_ranks(folder, "training", name)["rows"]
    except StopIteration:
        return "not measured"
    own = rows["ringcomm"]["seconds"]
    return "; ".join(f"{measure.ratio(rows[peer]['seconds'], own)[0]:.2f}" for peer in ("DDP, Gloo", "alone"))


def machine_rows() -> Iterator[list[str]]:
    """Yields rows of cells: the heads, then what was measured and the figure of each machine."""
    yield ["work, two ranks", *(_title(measure.read(folder / "training_step_mpich.json")) for folder in FOLDERS)]
    for kind, mpi in NAMES.items():
        faster = f"× {mpi}'s speed"
        for text, name, least, most in (
            ("all-reduce of an ordinary array, up to 4 KB", "ordinary", 0, 4 * KB),
            ("the same, from 8 KB up", "ordinary", 8 * KB, 1 << 40),
            ("in place, up to 4 KB", "in place", 0, 4 * KB),
            ("in place, from 8 KB up", "in place", 8 * KB, 1 << 40),
            ("of a shared array, from 256 KB up", "shared", 256 * KB, 1 << 40),
        ):
            yield [f"{text}, {faster}", *(_arrays(folder, kind, name, least, most) for folder in FOLDERS)]
        for name in ("broadcast", "reduce", "allgather", "reducescatter", "alltoall", "barrier"):
            yield [f"{name}, {faster}", *(_collective(folder, kind, name) for folder in FOLDERS)]
        yield [f"200 named gradients of 4 KB, {faster}", *(_named(folder, kind) for folder in FOLDERS)]
        text = f"step of 134 MB, {mpi}: added time as a share of DDP's; step, × a step without communication"
        yield [text, *(_step(folder, kind) for folder in FOLDERS)]
    for name, model in MODELS.items():
        text = f"step of {model}: time of DDP with Gloo / ours; of no communication / ours"
        yield [text, *(_model(folder, name) for folder in FOLDERS)]


def _title(one: dict[str, Any]) -> str:
    has = one["machine"]
    return f"{has['cpu']}, {has['instruction_set']}, {one['date'][:10]}"
