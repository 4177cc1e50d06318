"""Reads the inputs of `ringcomm advise`: the sizes of a model's parameters, and timelines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ringcomm._src.base.installed import missing_message
from ringcomm._src.cli.step_model import ITEMSIZE, Step
from ringcomm._src.cli.timeline_files import not_a_timeline, read_events, rows_of


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


def read_timeline(path: str) -> Step:
    """Returns the step that a rank's timeline shows, without the time of its communication.

    The first gradient marks the end of the forward pass, the last one that of the backward pass.
    Times are medians over steps.

    Parameters
    ----------
    path
        A file of ``RINGCOMM_TIMELINE``.

    Raises
    ------
    ValueError
        The file is no timeline, or shows fewer than three steps of a ``DistributedOptimizer``.
    OSError
        The file cannot be read.
    """
    events = read_events(path)
    try:
        steps = _steps(events)
    except (KeyError, TypeError):  # an event of another program
        raise not_a_timeline(path) from None
    if len(steps) < 3:
        raise ValueError(
            f"{path} does not show three steps of a DistributedOptimizer: record one on two ranks of a host, "
            "without overlap_forward"
        )
    sizes: dict[str, int] = {}
    after_first: dict[str, list[float]] = {}  # by parameter: seconds after the step's first gradient, in each step
    for _, gradients in steps:
        first = min(time for time, _, _ in gradients)
        for time, name, nbytes in gradients:
            sizes[name] = nbytes
            after_first.setdefault(name, []).append(time - first)
    ready = {name: statistics.median(times) for name, times in after_first.items()}
    names = sorted(ready, key=ready.__getitem__, reverse=True)
    forward = statistics.median(min(gradients)[0] - begin for begin, gradients in steps)
    return Step(forward, ready[names[0]], tuple(sizes[name] for name in names), tuple(ready[name] for name in names))


Gradient = tuple[float, str, int]  # time in seconds, parameter, bytes


def _steps(events: Sequence[Any]) -> list[tuple[float, list[Gradient]]]:
    """Returns the begin and the gradients of each complete step, of the plan with the most steps."""
    rows = rows_of(events)
    gradients: dict[str, list[Gradient]] = {}
    ends: dict[str, list[float]] = {}
    for event in events:
        row, kind = rows.get(event.get("tid"), ""), event.get("cat")
        if kind == "gradient":
            gradients.setdefault(row, []).append((event["ts"] * 1e-6, event["name"], int(event["args"]["bytes"])))
        elif kind == "done":
            ends.setdefault(row, []).append(event["ts"] * 1e-6)
    found = []
    for row, computed in gradients.items():
        if f"{row}/ready" in rows.values():  # a plan by priority: steps overlap
            continue
        stops = sorted(ends.get(row, []))
        steps = [(begin, [one for one in computed if begin < one[0] < end]) for begin, end in pairwise(stops)]
        found.append([step for step in steps if step[1]])
    return max(found, key=len, default=[])
