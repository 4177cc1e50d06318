"""Implements `ringcomm show`: prints and draws a schedule, the prover's verdict, and the cost."""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import sys
from typing import Any

from ringcomm._src.algorithms.registry import registered
from ringcomm._src.cli.names import algorithm_hint, topology_hint
from ringcomm._src.cli.outputs import animation_trouble, output_trouble
from ringcomm._src.cli.show_text import cost, describe, summary, value_table
from ringcomm._src.cli.sizes import parse_size
from ringcomm._src.cli.text import refuse
from ringcomm._src.cli.values import SYMBOLS, labels_of, parse_values
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core
from ringcomm._src.core._core import Network, Schedule

MOST_VALUES = 16  # largest number of ranks with values: more do not fit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("algorithm", nargs="?", help="name of the algorithm; without it, lists all built-in algorithms")
    add("--collective", default="allreduce", choices=_core.COLLECTIVES, help="collective (default allreduce)")
    add("--topology", metavar="NAME", help="show a gossip topology instead of an algorithm; 'list' lists them")
    add("--ranks", type=int, help="number of ranks (default: that of --values with numbers, 4 with --values, else 8)")
    add("--root", type=int, default=0, help="root of broadcast, reduce and rooted algorithms (default 0)")
    add("--file", metavar="FILE.py", help="run this file first, to register custom algorithms")
    add("--cost", action="store_true", help="print only the cost and the result of the proof, no table")
    add(
        "--values",
        nargs="?",
        const=SYMBOLS,
        metavar="LIST",
        help='also show the values after each round: "1,2;3,4" are two of each of two ranks; without LIST as symbols, '
        "a₁ is block 1 of rank 0 (all-reduce)",
    )
    add("--rounds", type=_rounds, metavar="A-B", help="show only these rounds, for example 0-2 or 3")
    add("--rank", type=int, metavar="R", help="show only this rank")
    add("--output", metavar="FILE.png", help="also draw a picture (png, svg or pdf; needs matplotlib)")
    add("--animate", metavar="FILE.html", help="also write one picture a round: html has buttons, gif plays")
    add("--size", type=parse_size, default=16 << 20, help="buffer size in bytes, for the cost (default 16M)")
    for name, what in (
        ("alpha", "latency of a short message, in seconds"),
        ("beta", "seconds per byte sent"),
        ("gap", "seconds for each further message of a round"),
        ("gamma", "seconds per byte reduced"),
    ):
        add(f"--{name}", type=float, default=NETWORK[name], help=f"{what} (default {NETWORK[name]:g})")


def _rounds(text: str) -> range:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} are no rounds: write 3, or 0-2 for the first three")
    return range(first, last + 1)


def run(options: argparse.Namespace) -> int:
    if not options.topology and not options.algorithm:
        print(listing())
        return 0
    if trouble := output_trouble(None, options.output, option="--output") or animation_trouble(options.animate):
        return refuse("show", trouble)
    if options.topology:
        from ringcomm._src.cli import graph

        if hint := topology_hint(options.topology) if options.file is None else None:
            return refuse("show", hint)
        return graph.show(options.topology, options.ranks or 8, options.file, options.output)
    try:
        values = parse_values(options.values) if options.values else None
        schedules = schedules_of(options, values)
        rounds = _checked_rounds(options, schedules)
        labels = labels_of(schedules, values) if values else None
    except (ValueError, RuntimeError, OSError) as error:
        return refuse("show", error)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    chosen = None if options.rank is None else [options.rank]
    print(summary(schedules) if options.cost else describe(schedules, width, rounds, chosen))
    if labels and not options.cost:
        print("\n".join(["", *value_table(labels, rounds, chosen, width), ""]))
    print(cost(schedules, options.size, network(options)))
    if options.output or options.animate:
        draw(options, schedules, rounds, labels)
    return 0 if _core.prove(schedules) is None else 1


def draw(options: argparse.Namespace, schedules: list[Schedule], rounds: range, labels: Any) -> None:
    from ringcomm._src.cli.animate import write
    from ringcomm._src.cli.compact import figure_of

    if options.output:
        figure_of(schedules, rounds, options.rank, labels).savefig(options.output, dpi=110)
        print(f"picture written to {options.output}")
    if options.animate:
        figures = [figure_of(schedules, range(i, i + 1), options.rank, labels) for i in rounds]
        write(options.animate, figures)
        print(f"{len(figures)} pictures written to {options.animate}")


def listing() -> str:
    """Returns a list of the built-in algorithms with their summaries, by collective."""
    lines: list[str] = []
    for collective in _core.COLLECTIVES:
        found = [a for a in _core.algorithms() if a.collective == collective]
        if found:
            lines += [f"{collective}:", *(f"  {a.name:<20} {a.summary}" for a in found)]
    return "\n".join(lines)


def schedules_of(options: argparse.Namespace, values: list[list[float]] | str | None) -> list[Schedule]:
    """Returns the schedules of all ranks, of a built-in algorithm or one that --file registers.

    Raises ValueError if the algorithm does not exist, its schedule is not proved, or the numbers do
    not fit.
    """
    size = options.ranks
    if isinstance(values, list):
        if size not in (None, len(values)):
            raise ValueError(f"--values has the values of {len(values)} ranks, but --ranks is {size}")
        size = len(values)
    size = (4 if values else 8) if size is None else size
    if not 1 <= size <= 1024 or not 0 <= options.root < size:
        raise ValueError("--ranks must be 1 to 1024, and --root one of the ranks")
    if values and size > MOST_VALUES:
        raise ValueError(f"--values shows at most {MOST_VALUES} ranks, not {size}")
    if options.rank is not None and not 0 <= options.rank < size:
        raise ValueError(f"--rank {options.rank} is not one of the {size} ranks")
    if options.file is not None:
        runpy.run_path(options.file, run_name="ringcomm_show")
    custom = registered(options.collective, options.algorithm)
    if custom is not None:
        return custom.schedules(size)
    try:
        return [_core.schedule(options.collective, options.algorithm, r, size, options.root) for r in range(size)]
    except ValueError as error:
        raise ValueError(algorithm_hint(options.collective, options.algorithm) or str(error)) from None


def _checked_rounds(options: argparse.Namespace, schedules: list[Schedule]) -> range:
    every = range(max(len(schedule.rounds) for schedule in schedules))
    if options.rounds is None:
        return every
    if options.rounds[-1] not in every:
        raise ValueError(f"--rounds {options.rounds[0]}-{options.rounds[-1]}: the schedule has {len(every)} rounds")
    return range(options.rounds.start, options.rounds.stop)


def network(options: argparse.Namespace) -> Network:
    given = {name: getattr(options, name) for name in ("alpha", "beta", "gap", "gamma")}
    return Network(**(NETWORK | given))
