"""Reads the inputs of `ringcomm advise`: the sizes of a model's parameters, and timelines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringcomm._src.base.installed import missing_message
from ringcomm._src.cli.step_model import ITEMSIZE, Step
from ringcomm._src.cli.timeline_files import BUCKET, not_a_timeline, read_events, rows_of, tensors_of


def read_sizes(path: str) -> dict[str, int]:
    """Returns the bytes of each parameter, in the order of the file.

    Parameters
    ----------
    path
        A JSON object of bytes or shapes by name (a file ``*.json``), or a TorchScript file.

    Raises
    ------
    ValueError
        The file is neither, or has no parameters.
    OSError
        The file cannot be read.
    """
    sizes = _from_json(path) if path.endswith(".json") else _from_torchscript(path)
    if not sizes:
        raise ValueError(f"{path} has no parameters")
    return sizes


def _from_json(path: str) -> dict[str, int]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f'{path} is not an object of names, as in {{"weight": [512, 512], "bias": 2048}}')
    return {name: _nbytes(path, name, value) for name, value in document.items()}


def _nbytes(path: str, name: str, value: object) -> int:
    lengths = value if isinstance(value, list) else [value]
    if not all(type(length) is int and length > 0 for length in lengths):
        raise ValueError(f"{path}: {name!r} is {value!r}, neither a number of bytes nor a shape")
    return math.prod(lengths) * (ITEMSIZE if isinstance(value, list) else 1)


def _from_torchscript(path: str) -> dict[str, int]:
    if trouble := missing_message("torch", f"--model {path}"):
        raise ValueError(trouble)
    import torch

    Path(path).stat()  # raises a clear error if there is no file
    try:
        module = torch.jit.load(path, map_location="cpu")
    except RuntimeError:
        raise ValueError(f"{path} is neither a TorchScript file nor a file named *.json") from None
    return {name: p.numel() * p.element_size() for name, p in module.named_parameters()}


# ---- timelines -------------------------------------------------------------------------------------------------------


class Bucket(NamedTuple):
    """A bucket of gradients in a timeline."""

    ready: float  # seconds from the begin of the step's first bucket; a median
    nbytes: int
    tensors: list[str]


def read_timeline(path: str, sizes: Mapping[str, int]) -> Step:
    """Returns the step that a rank's timeline shows, without the time of its communication.

    The first gradient marks the end of the forward pass. The last bucket marks the end of the
    backward pass. Times are medians over steps.

    Parameters
    ----------
    path
        A file of ``RINGCOMM_TIMELINE``.
    sizes
        Bytes of each parameter by name; empty: each bucket counts as one parameter.

    Raises
    ------
    ValueError
        The file is no timeline, shows fewer than three steps of a ``DistributedOptimizer``, or
        names parameters that `sizes` does not have.
    OSError
        The file cannot be read.
    """
    events = read_events(path)
    try:
        forward, buckets = _steps(path, events)
    except (KeyError, TypeError):  # an event of another program
        raise not_a_timeline(path) from None
    backward = max(bucket.ready for bucket in buckets)
    sizes_then_ready: list[tuple[int, float]] = []  # in the order in which gradients become ready
    begin = 0.0
    for bucket in sorted(buckets):
        items = _items(path, bucket, sizes)
        total, done = sum(items), 0
        for size in items:
            done += size
            sizes_then_ready.append((size, begin + (bucket.ready - begin) * (done / total)))
        begin = bucket.ready
    sizes_then_ready.reverse()
    return Step(forward, backward, *(tuple(values) for values in zip(*sizes_then_ready, strict=True)))


def _items(path: str, bucket: Bucket, sizes: Mapping[str, int]) -> list[int]:
    if not sizes:
        return [bucket.nbytes]
    if unknown := [name for name in bucket.tensors if name not in sizes]:
        raise ValueError(f"--model has no parameter {unknown[0]!r}, which {path} names")
    return [sizes[name] for name in bucket.tensors] or [bucket.nbytes]


def _steps(path: str, events: Sequence[Any]) -> tuple[float, list[Bucket]]:
    """Returns the seconds of the forward pass, and the buckets, of the plan with the most steps."""
    names, tensors = rows_of(events), tensors_of(events)
    begins: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    fills: dict[str, dict[str, list[tuple[float, int]]]] = {}  # plan -> bucket -> (time, bytes)
    for event in events:
        row, kind = names.get(event.get("tid"), ""), event.get("cat")
        bucket = BUCKET.fullmatch(row)
        if bucket and kind == "filled":
            fill = event["ts"] * 1e-6, int(event["args"]["bytes"])
            fills.setdefault(bucket[1], {}).setdefault(row, []).append(fill)
        elif row.startswith("plan/") and kind in ("begin", "done"):
            (begins if kind == "begin" else ends).setdefault(row, []).append(event["ts"] * 1e-6)
    plan = max(fills, key=lambda plan: len(begins.get(plan, [])), default="")
    starts = begins.get(plan, [])
    stops = [stop for stop in ends.get(plan, []) if starts and stop > starts[0]]  # without a step cut at the begin
    steps = list(zip(starts, stops, strict=False))
    forward = [start - stop for start, stop in zip(starts[1:], stops, strict=False)]
    if len(steps) < 3 or min(forward) < 0:
        raise ValueError(
            f"{path} does not show three steps of a DistributedOptimizer: record one on two ranks of a host, "
            "without overlap_forward"
        )
    buckets = []
    for name, found in fills[plan].items():
        ready = [time - start for start, stop in steps for time, _ in found if start <= time <= stop]
        if ready:
            buckets.append(Bucket(statistics.median(ready), found[-1][1], tensors.get(name, [])))
    return statistics.median(forward), buckets
