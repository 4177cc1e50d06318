"""Implements `ringcomm advise`: predicts what more ranks bring, and what to change first."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ringcomm._src.base.ops import wire_code
from ringcomm._src.cli import measured, simulate
from ringcomm._src.cli import step_model as model
from ringcomm._src.cli.advise_input import read_sizes, read_timeline
from ringcomm._src.cli.sizes import human_size, human_time, parse_link, parse_seconds, parse_sizes
from ringcomm._src.cli.text import aligned, refuse
from ringcomm._src.cli.wires import parse_wire
from ringcomm._src.core import _core

DEFAULT_RANKS = "2,4,8,16,32,64,128,256"
CODECS = {"fp16": "float16", "int8": "int8", "int4": "int4", "topk(0.01)": "topk:0.01"}  # the mildest first
PERIODS = (2, 4, 8, 16, 32, 64)  # steps between two averages of local SGD
ENOUGH = 1.05  # times the best codec's step: a milder codec within it is preferred
NEAR = 1.1  # times the computation: the period of local SGD is the first one within it
PAYS = 0.5  # least gain by a further rank, as a share of one process's samples per second
WORTH = 1.02  # least gain of a change that is listed
COLUMNS = ("ranks", "method", "step", "speed-up", "efficiency", "samples/s")
WIDTHS = (6, 28, 10, 9, 10, 12)


@dataclasses.dataclass
class Row:
    """A method on a number of ranks. The batch of each rank is the same for every number."""

    ranks: int
    method: str
    seconds: float  # time of a step
    speedup: float  # samples per second, divided by those of one process
    efficiency: float  # speedup / ranks


class Change(NamedTuple):
    """A change to synchronous training, with its predicted gain."""

    what: str
    gain: float  # factor on samples per second
    cost: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--model",
        metavar="FILE",
        help="*.json: an object of bytes or shapes by parameter, in the order of use; else a TorchScript file",
    )
    add("--timeline", metavar="FILE.json", help="timeline of a rank, in place of --model and --step-time")
    add("--step-time", type=parse_seconds, metavar="TIME", help="step of one process, for example 120ms")
    add("--forward-share", type=float, metavar="SHARE", help="forward pass and update, of the step (default 0.33)")
    add("--batch", type=int, default=1, metavar="N", help="samples of a rank's step (default 1)")
    add("--network", required=True, metavar="RATE,LATENCY", help="link of each host, or a file of 'ringcomm tune'")
    add("--host-link", type=parse_link, metavar="RATE,LATENCY", help="messages inside a host, for example 40gbit,1us")
    add("--ranks", type=parse_sizes, default=parse_sizes(DEFAULT_RANKS), help=f"default {DEFAULT_RANKS}")
    add("--ranks-per-host", type=int, default=1, metavar="N", help="ranks that share a host's link (default 1)")
    add(
        "--overhead",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of its speed that computation loses while data moves, for example if TCP uses its cores "
        "(default 0)",
    )
    add("--json", metavar="FILE", help="also write the step, the network, all rows and changes to FILE")


def run(options: argparse.Namespace) -> int:
    try:
        network = _network_of(options)
        step = step_of(options)
        _check(options)
        rows = [row for ranks in options.ranks for row in methods(step, ranks, options, network)]
        most = max(options.ranks)
        listed = changes(step, most, options, network)
    except (ValueError, OSError, argparse.ArgumentTypeError) as error:
        return refuse("advise", error)
    print("\n".join([*table(step, rows, options.batch), "", *sentences(rows, listed, most)]), flush=True)
    if options.json:
        document: dict[str, Any] = {
            "units": {"forward": "s", "backward": "s", "sizes": "B", "ready": "s", "seconds": "s", "network": "s, s/B"},
            "step": step._asdict(),
            "batch": options.batch,
            "ranks_per_host": options.ranks_per_host,
            "overhead": options.overhead,
            "network": network._asdict(),
            "rows": [dataclasses.asdict(row) for row in rows],
            "changes": [change._asdict() for change in listed],
        }
        measured.write_json(options.json, document)
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("batch", "ranks_per_host"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1")
    if min(options.ranks) < 1:
        raise ValueError("--ranks must be at least 1")
    if not 0 <= options.overhead < 1:
        raise ValueError("--overhead must be at least 0 and below 1")


def _network_of(options: argparse.Namespace) -> _core.Network:
    """Returns the network of --network and --host-link, by the rules of simulate."""
    file = options.network.endswith(".json")
    described = argparse.Namespace(
        network=options.network if file else None,
        link=None if file else parse_link(options.network),
        host_link=options.host_link,
        **dict.fromkeys(("gap", "gamma", "copy")),
    )
    try:
        return simulate.network_of(described)[0]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{options.network} is not a file of 'ringcomm tune --json'") from None


def step_of(options: argparse.Namespace) -> model.Step:
    """Returns the step of one process that the options describe.

    Raises
    ------
    ValueError
        The options describe none, or contradict each other.
    """
    share, seconds = options.forward_share, options.step_time
    if seconds == 0:
        raise ValueError("--step-time must be above 0")
    if options.timeline:
        if share is not None:
            raise ValueError("--forward-share contradicts --timeline, which shows the share")
        if options.model:
            raise ValueError("--model contradicts --timeline, which shows the parameters")
        step = read_timeline(options.timeline)
        return step.slower(seconds / step.seconds) if seconds else step
    if not options.model or not seconds:
        raise ValueError("give --model and --step-time, or --timeline")
    share = 1 / 3 if share is None else share
    if not 0 <= share <= 1:
        raise ValueError("--forward-share must be between 0 and 1")
    return model.step_by_bytes(seconds, share, list(read_sizes(options.model).values()))


# ---- the predictions -------------------------------------------------------------------------------------------------


def methods(step: model.Step, ranks: int, options: argparse.Namespace, network: _core.Network) -> Iterator[Row]:
    """Yields a row for each method on this number of ranks."""
    overhead, price = options.overhead, model.prices(ranks, options.ranks_per_host, network)
    codec, encoded = best_codec(step, ranks, options, network)
    every = best_period(step, price)
    for method, seconds in (
        ("synchronous", model.synchronous(step, price, overhead)),
        ("overlap_forward", model.overlap_forward(step, price, overhead)),
        (f"compression {codec}", encoded),
        (f"local SGD, every {every} steps", model.local_sgd(step, price, every)),
        ("sharded optimizer (ZeRO)", model.sharded_optimizer(step, price, overhead)),
        ("sharded model (FSDP)", model.sharded_model(step, price, overhead)),
    ):
        efficiency = step.seconds / seconds
        yield Row(ranks, method, seconds, efficiency * ranks, efficiency)


def best_codec(step: model.Step, ranks: int, options: argparse.Namespace, network: _core.Network) -> tuple[str, float]:
    """Returns the mildest codec that is about as fast as the fastest, and its seconds of a step.

    "none" if no codec makes the step shorter.
    """
    times = {}
    for name, wire in {"none": "", **CODECS}.items():
        price = model.prices(ranks, options.ranks_per_host, network, wire_code(parse_wire(wire)) if wire else 0)
        times[name] = model.synchronous(step, price, options.overhead)
    least = min(times.values())
    return next((name, seconds) for name, seconds in times.items() if seconds <= ENOUGH * least)


def best_period(step: model.Step, price: model.Price) -> int:
    """Returns the shortest period of local SGD with steps about as long as their computation."""
    near = (every for every in PERIODS if model.local_sgd(step, price, every) <= NEAR * step.seconds)
    return next(near, PERIODS[-1])


def changes(step: model.Step, ranks: int, options: argparse.Namespace, network: _core.Network) -> list[Change]:
    """Returns the changes to synchronous training that pay on this number of ranks, best first."""
    before, overlapped, compressed, local, *_ = methods(step, ranks, options, network)
    double = model.prices(ranks, options.ranks_per_host, network._replace(beta=network.beta / 2))
    price = model.prices(ranks, options.ranks_per_host, network)
    twice = model.synchronous(step.slower(2), price, options.overhead) / 2
    candidates = [
        ("overlap_forward=True", overlapped.seconds, "the results stay the same"),
        (compressed.method, compressed.seconds, "gradients are rounded: compare the loss"),
        (local.method, local.seconds, "ranks differ between averages: compare the loss"),
        ("twice the batch of a rank", twice, "assumes twice the computation: adapt the learning rate"),
        ("links of twice the rate", model.synchronous(step, double, options.overhead), "the results stay the same"),
    ]
    found = [Change(what, before.seconds / seconds, cost) for what, seconds, cost in candidates]
    return sorted((change for change in found if change.gain >= WORTH), key=lambda change: -change.gain)


def stops_paying(rows: Sequence[Row]) -> int:
    """Returns the last number of ranks up to which further ranks pay, or 1.

    Parameters
    ----------
    rows
        One method's rows.
    """
    points = [(1, 1.0), *sorted((row.ranks, row.speedup) for row in rows if row.ranks > 1)]
    for (fewer, before), (more, after) in pairwise(points):
        if more > fewer and (after - before) / (more - fewer) < PAYS:
            return fewer
    return points[-1][0]


# ---- for people ------------------------------------------------------------------------------------------------------


def table(step: model.Step, rows: Sequence[Row], batch: int) -> list[str]:
    lines = [
        f"# one process: {human_time(step.seconds)} a step, {step.forward / step.seconds:.0%} of it forward; "
        f"{human_size(sum(step.sizes))} of gradients in {len(step.sizes)} parts",
        aligned(COLUMNS, WIDTHS, (1,)),
    ]
    last = 0
    for row in rows:
        if row.ranks != last and last:
            lines.append("")
        last = row.ranks
        samples = row.ranks * batch / row.seconds
        cells = (str(row.ranks), row.method, human_time(row.seconds), f"{row.speedup:.2f}", f"{row.efficiency:.0%}")
        lines.append(aligned((*cells, f"{samples:.4g}"), WIDTHS, (1,)))
    return lines


def sentences(rows: Sequence[Row], listed: Sequence[Change], most: int) -> list[str]:
    """Returns the advice in sentences."""
    plain = [row for row in rows if row.method == "synchronous"]
    best = max(plain, key=lambda row: row.speedup)
    if best.speedup <= 1:
        fastest = max(rows, key=lambda row: row.speedup)
        lines = ["Synchronous training on several ranks is slower than one process."]
        if fastest.speedup > 1:
            lines.append(f"{fastest.method} on {fastest.ranks} ranks is {fastest.speedup:.2f} times as fast.")
    else:
        lines = [f"Synchronous training is fastest on {best.ranks} ranks: {best.speedup:.2f} times one process."]
    last = stops_paying(plain)
    if last < most:
        lines.append(f"Beyond {last} rank{'s' * (last > 1)}, a further rank adds less than half a process.")
    else:
        lines.append(f"More ranks pay up to {most}, the most that were asked for.")
    if not listed:
        return [*lines, f"On {most} ranks, no change gains {WORTH - 1:.0%}: computation takes most of the step."]
    lines.append(f"On {most} ranks, change first (each one for itself, against synchronous training):")
    width = math.ceil(math.log10(len(listed) + 1))
    for number, change in enumerate(listed, 1):
        lines.append(f"{number:{width}}. {change.what}: {change.gain:.2f} times the samples/s; {change.cost}")
    return lines
