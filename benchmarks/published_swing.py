"""Compares simulated times of all-reduce on tori with those that the authors of Swing published.

    python benchmarks/published_swing.py

benchmarks/results/published_swing.json has the points of the paper's figures 6, 10 and 11, with
their source. Rate and latency of a link are the paper's. One row fixes the latency of a message.
Recursive doubling and the ring are the library's schedules. Swing is given as the messages of its
rounds, because the library has it in one dimension only. The predictions, and the congestion
deficiencies of the paper's table 2, are written to the file.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import measure

from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

FILE = measure.RESULTS / "published_swing.json"
BETA, HOP = 2e-11, 400e-9  # the paper's section 5: 400 Gb/s, 100 ns for a link and 300 ns for a hop
LEAST = 0.25  # Gb/s; a figure shows less than this with an error above 1 %
FIT: dict[str, Any] = {"figure": "11a", "published": "Hamiltonian rings", "nbytes": 32 << 10}
SHAPES = [[1 << k] for k in range(3, 13)] + [[1 << k] * 2 for k in range(2, 7)] + [[4] * 3, [8] * 3, [4] * 4, [8] * 4]

Shape = tuple[int, ...]


def network(alpha: float) -> _core.Network:
    zero = dict.fromkeys(("gap", "hidden", "gamma", "copy"), 0.0)
    return _core.Network(**(NETWORK | zero | {"alpha": alpha, "beta": BETA}))


@cache
def torus(shape: Shape) -> _core.Topology:
    return _core.Topology.torus(shape, HOP)


def steps(shape: Shape, start: int) -> list[tuple[int, int]]:
    """Returns the dimension of each step, and how many earlier steps have the same dimension."""
    sizes = [length.bit_length() - 1 for length in shape]
    order = [(start + k) % len(shape) for k in range(len(shape))]
    return [(d, step) for step in range(max(sizes)) for d in order if step < sizes[d]]


def host(position: Sequence[int], shape: Shape) -> int:
    number = 0
    for coordinate, length in zip(position, shape, strict=True):
        number = number * length + coordinate % length
    return number


def position(number: int, shape: Shape) -> list[int]:
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return [number // stride % length for stride, length in zip(strides, shape, strict=True)]


# ---- Swing -----------------------------------------------------------------------------------------------------------


def peer(number: int, shape: Shape, dimension: int, step: int, mirrored: bool) -> int:
    at = position(number, shape)
    distance = (1 - (-2) ** (step + 1)) // 3
    at[dimension] += distance if (at[dimension] % 2 == 0) != mirrored else -distance
    return host(at, shape)


@cache
def swing_steps(shape: Shape, ports: int) -> list[list[_core.Schedule]]:
    """Returns each step's messages, as schedules of all ranks with one round.

    Each port runs an all-reduce of a part of the data. They start in different dimensions,
    and every second one in the opposite direction. 1 or 2 * len(shape) ports.
    """
    ranks = math.prod(shape)
    parts = [(steps(shape, start), mirrored) for start in range(len(shape)) for mirrored in (False, True)][:ports]

    def schedule(rank: int, step: int) -> _core.Schedule:
        peers = [peer(rank, shape, *order[step], mirrored) for order, mirrored in parts]
        messages = [_core.Step(kind, to, k, -1, None) for kind in ("send", "receive") for k, to in enumerate(peers)]
        return _core.Schedule("allreduce", "swing", rank, ranks, 0, ports, [], [messages])

    return [[schedule(rank, step) for rank in range(ranks)] for step in range(len(parts[0][0]))]


def swing(shape: Shape, nbytes: int, alpha: float, ports: int) -> tuple[float, float]:
    """Returns the seconds of the variant with few bytes, and of the one with few rounds."""

    def seconds(schedules: list[_core.Schedule], size: int) -> float:
        return _core.price(schedules, size, network(alpha), topology=torus(shape)).seconds

    found = swing_steps(shape, ports)
    few_bytes = 2 * sum(seconds(schedules, nbytes >> (step + 1)) for step, schedules in enumerate(found))
    return few_bytes, sum(seconds(schedules, nbytes) for schedules in found)


# ---- schedules of the library ----------------------------------------------------------------------------------------


def alternating(shape: Shape) -> list[int]:
    """Returns the host of each rank if bit k of the rank selects a side in step k's dimension."""
    hosts = []
    for rank in range(math.prod(shape)):
        at = [0] * len(shape)
        for bit, (dimension, step) in enumerate(steps(shape, 0)):
            at[dimension] |= (rank >> bit & 1) << step
        hosts.append(host(at, shape))
    return hosts


def cycle(shape: Shape) -> list[int]:
    """Returns hosts in a cycle of neighbours, if the columns divide the rows."""
    rows, columns = shape
    return [host((row, column - row), shape) for row in range(rows) for column in range(columns)]


@cache
def menu(shape: Shape, algorithm: str, alpha: float) -> _core.Menu:
    hosts = cycle(shape) if algorithm == "ring" else alternating(shape)
    return _core.Menu("allreduce", math.prod(shape), hosts, network(alpha), torus(shape))


def by_schedule(shape: Shape, algorithm: str, nbytes: int, alpha: float) -> float:
    (option,) = menu(shape, algorithm, alpha).options(algorithm, nbytes, segment=max(1, nbytes), window=1)
    return option.price.seconds


def predicted(curve: dict[str, Any], nbytes: int, alpha: float) -> float:
    shape = tuple(curve["shape"])
    if curve["published"] == "Swing":
        return min(swing(shape, nbytes, alpha, 2 * len(shape)))
    if curve["published"] == "Hamiltonian rings":  # a ring in each direction of two cycles without common links
        return by_schedule(shape, "ring", nbytes // 4, alpha)
    return min(by_schedule(shape, name, nbytes, alpha) for name in ("butterfly_halving", "butterfly_doubling"))


# ---- the paper's table 2 ---------------------------------------------------------------------------------------------


def deficiencies(shape: Shape) -> dict[str, float]:
    """Returns the paper's congestion deficiencies for this torus, and those of simulated messages."""
    order = steps(shape, 0)
    swings = [abs(1 - (-2) ** (step + 1)) // 3 / 2 ** (s + 1) for s, (_, step) in enumerate(order)]
    halvings = [2**step / 2 ** (s + 1) for s, (_, step) in enumerate(order)]
    many, ports = 1 << 50, 2 * len(shape)  # bytes, so that latencies do not count
    swung = swing(shape, many, 0.0, ports)[0] / (2 * BETA * many / ports)
    halved = by_schedule(shape, "butterfly_halving", many, 0.0) / (2 * BETA * many)
    return {"swing": sum(swings), "swing simulated": swung, "halving": sum(halvings), "halving simulated": halved}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=FILE, help="published points, to which predictions are added")
    options = parser.parse_args()
    document = measure.read(options.json)
    (fit,) = (curve for curve in document["curves"] if all(curve[key] == FIT[key] for key in ("figure", "published")))
    base, more = (predicted(fit, FIT["nbytes"], alpha) for alpha in (0.0, 1e-6))
    alpha = (fit["seconds"][fit["nbytes"].index(FIT["nbytes"])] - base) / (more - base) * 1e-6
    errors: dict[str, list[float]] = {}
    for curve in document["curves"]:
        curve["predicted"] = [predicted(curve, nbytes, alpha) for nbytes in curve["nbytes"]]
        curve["error"] = [mine / its - 1 for mine, its in zip(curve["predicted"], curve["seconds"], strict=True)]
        pairs = zip(curve["nbytes"], curve["error"], strict=True)
        own = [abs(error) for nbytes, error in pairs if curve is not fit or nbytes != FIT["nbytes"]]
        errors.setdefault(curve["published"], []).extend(own)
        print(f"{curve['shape']!s:<16} {curve['published']:<20} {statistics.fmean(own):6.1%} mean {max(own):6.1%} most")
    document["alpha"], document["fit"] = alpha, FIT
    document["errors"] = {name: measure.summary(own) for name, own in errors.items()}
    document["deficiencies"] = [{"shape": shape, **deficiencies(tuple(shape))} for shape in SHAPES]
    for row in document["deficiencies"]:
        print("# deficiencies", *(value if name == "shape" else f"{name} {value:.4f}" for name, value in row.items()))
    measure.write(options.json, document)
    print(f"# latency {alpha * 1e9:.0f} ns", document["errors"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
