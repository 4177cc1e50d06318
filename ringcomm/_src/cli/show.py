"""Implements `ringcomm show`: prints a schedule as a table, the prover's verdict, and the cost."""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
from collections.abc import Sequence

from ringcomm._src.algorithms.registry import registered
from ringcomm._src.base.installed import missing_message
from ringcomm._src.cli.sizes import human_size, human_time, parse_size
from ringcomm._src.cli.text import refuse, runs
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core
from ringcomm._src.core._core import Network, Schedule, Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("algorithm", nargs="?", help="name of the algorithm; without it, lists all built-in algorithms")
    add("--collective", default="allreduce", choices=_core.COLLECTIVES, help="collective (default allreduce)")
    add("--topology", metavar="NAME", help="show a gossip topology instead of an algorithm; 'list' lists them")
    add("--ranks", type=int, default=8, help="number of ranks (default 8)")
    add("--root", type=int, default=0, help="root of broadcast, reduce and rooted algorithms (default 0)")
    add("--file", metavar="FILE.py", help="run this file first, to register custom algorithms")
    add("--cost", action="store_true", help="print only the cost and the result of the proof, no table")
    add("--output", metavar="FILE.png", help="also draw a picture (png, svg or pdf; needs matplotlib)")
    add("--size", type=parse_size, default=16 << 20, help="buffer size in bytes, for the cost (default 16M)")
    for name, what in (
        ("alpha", "latency of a short message, in seconds"),
        ("beta", "seconds per byte sent"),
        ("gap", "seconds for each further message of a round"),
        ("gamma", "seconds per byte reduced"),
    ):
        add(f"--{name}", type=float, default=NETWORK[name], help=f"{what} (default {NETWORK[name]:g})")


def run(options: argparse.Namespace) -> int:
    if not options.topology and not options.algorithm:
        print(listing())
        return 0
    if options.output and (trouble := missing_message("matplotlib", "--output")):
        return refuse("show", trouble)
    if options.topology:
        from ringcomm._src.cli import graph

        return graph.show(options.topology, options.ranks, options.file, options.output)
    if not 1 <= options.ranks <= 1024 or not 0 <= options.root < options.ranks:
        return refuse("show", "--ranks must be 1 to 1024, and --root one of the ranks")
    try:
        schedules = schedules_of(options.algorithm, options.collective, options.ranks, options.root, options.file)
    except (ValueError, RuntimeError, OSError) as error:
        return refuse("show", error)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(summary(schedules) if options.cost else describe(schedules, width))
    print(cost(schedules, options.size, network(options)))
    if options.output:
        from ringcomm._src.cli.picture import draw

        draw(schedules, options.output)
        print(f"picture written to {options.output}")
    return 0 if _core.prove(schedules) is None else 1


def listing() -> str:
    """Returns a list of the built-in algorithms with their summaries, by collective."""
    lines: list[str] = []
    for collective in _core.COLLECTIVES:
        found = [a for a in _core.algorithms() if a.collective == collective]
        if found:
            lines += [f"{collective}:", *(f"  {a.name:<20} {a.summary}" for a in found)]
    return "\n".join(lines)


def schedules_of(name: str, collective: str, size: int, root: int, file: str | None) -> list[Schedule]:
    """Returns the schedules of all ranks, of a built-in algorithm or one that `file` registers.

    Raises ValueError if the algorithm does not exist or its schedule is not proved.
    """
    if file is not None:
        runpy.run_path(file, run_name="ringcomm_show")
    own = registered(collective, name)
    if own is not None:
        return own.schedules(size)
    return [_core.schedule(collective, name, rank, size, root) for rank in range(size)]


# ---- text ------------------------------------------------------------------------------------------------------------


def describe(schedules: Sequence[Schedule], width: int | None = None) -> str:
    """Returns a table of the schedules (a column per rank, a row per round) and the verdict.

    `schedules[r]` is rank r's. In a cell, ``→3 [0-2]`` sends blocks 0 to 2 to rank 3, ``←5 [1]``
    receives block 1 from rank 5, and ``←5 +[1]`` receives from rank 5 and reduces into block 1.
    Scratch blocks are written t0, t1 ... If `width` is given, ranks that do not fit into that
    number of columns are left out, and a line names them.
    """
    head, verdict = summary(schedules).split("\n")
    return "\n".join([head, "", *_fitting(_table(schedules), width), "", verdict])


def summary(schedules: Sequence[Schedule]) -> str:
    """Returns two lines: the properties of the schedule, and the prover's verdict."""
    first = schedules[0]
    scratch = f" and {len(first.temps)} scratch" if first.temps else ""
    head = (
        f"{first.collective} by {first.algorithm}: {first.size} ranks, {first.blocks} block{'s' * (first.blocks != 1)}"
        f"{scratch}{f', root {first.root}' if _rooted(first) else ''}"
        f"{f', symmetric under {first.symmetry}' if first.symmetry != 'none' else ''}"
    )
    why = _core.prove(schedules)
    verdict = (
        "proved: no deadlock, each contribution exactly once, one order of operands on all ranks"
        if why is None
        else f"NOT PROVED: {why}"
    )
    return f"{head}\n{verdict}"


def _fitting(table: list[str], width: int | None) -> list[str]:
    """Returns the columns that fit, and a line that names the ranks that are left out."""
    ranks = table[0].count("rank ")
    if width is None or max(map(len, table)) <= width:
        return table
    ends = [column for column, letter in enumerate(table[1]) if letter == "+"]  # columns end at the plus signs
    fit = sum(end <= width for end in ends[1:])
    cut = [line[: ends[fit] if fit else width].rstrip() for line in table]
    what = (
        f"ranks {fit} to {ranks - 1} are"
        if 0 < fit < ranks - 1
        else f"rank {ranks - 1} is"
        if fit
        else "part of the table is"
    )
    return [*cut, f"      {what} not shown, because this terminal has {width} columns: '| less -S' shows everything"]


def _rooted(schedule: Schedule) -> bool:
    return schedule.collective in ("broadcast", "reduce") or schedule.root != 0


def _table(schedules: Sequence[Schedule]) -> list[str]:
    rounds = max(len(s.rounds) for s in schedules)
    cells = [[_cell(s.rounds[i] if i < len(s.rounds) else [], s.blocks) for s in schedules] for i in range(rounds)]
    widths = [max([len(f"rank {r}"), *(len(line) for row in cells for line in row[r])]) for r in range(len(schedules))]
    rule = "------+-" + "-+-".join("-" * w for w in widths)
    lines = ["round | " + " | ".join(f"rank {r}".ljust(w) for r, w in enumerate(widths)).rstrip(), rule]
    for index, row in enumerate(cells):
        for line in range(max(len(cell) for cell in row) or 1):
            texts = [(cell[line] if line < len(cell) else "").ljust(w) for cell, w in zip(row, widths, strict=True)]
            lines.append(f"{index if line == 0 else '':>5} | " + " | ".join(texts).rstrip())
        lines.append(rule)
    return lines[:-1] if cells else [*lines, "      (no messages)"]


def _cell(steps: Sequence[Step], blocks: int) -> list[str]:
    sends: dict[int, list[int]] = {}
    receives: dict[tuple[int, str], list[int]] = {}
    local: list[str] = []
    for step in steps:
        if step.kind == "send":
            sends.setdefault(step.peer, []).append(step.block)
        elif step.kind in ("receive", "reduce"):
            receives.setdefault((step.peer, "+" if step.kind == "reduce" else ""), []).append(step.block)
        else:
            sign = "=" if step.kind == "copy" else "+="
            local.append(f"[{_ranges([step.block], blocks)}] {sign} [{_ranges([step.source], blocks)}]")
    peers_of: dict[tuple[str, str], list[int]] = {}  # peers with equal blocks share a line
    for peer, listed in sends.items():
        peers_of.setdefault(("→", f"[{_ranges(listed, blocks)}]"), []).append(peer)
    for (peer, sign), listed in receives.items():
        peers_of.setdefault(("←", f"{sign}[{_ranges(listed, blocks)}]"), []).append(peer)
    return [f"{arrow}{_ranges(sorted(peers))} {what}" for (arrow, what), peers in peers_of.items()] + local


def _ranges(numbers: Sequence[int], blocks: int = sys.maxsize) -> str:
    """Formats block numbers: 0,1,2,5 as "0-2,5", scratch blocks as t0, t1 ..."""
    names = [[str(n) if n < blocks else f"t{n - blocks}" for n in (run[0], run[-1])] for run in runs(numbers, blocks)]
    return ",".join(a if a == b else f"{a}-{b}" for a, b in names)


def network(options: argparse.Namespace) -> Network:
    given = {name: getattr(options, name) for name in ("alpha", "beta", "gap", "gamma")}
    return Network(**(NETWORK | given))


def cost(schedules: Sequence[Schedule], nbytes: int, network: Network) -> str:
    """Returns two lines: the busiest rank's cost in units of the buffer size S, and the time.

    The time is for one segment, with each rank on a separate host.
    """
    price = _core.price(schedules, nbytes, network)
    size, plural = nbytes or 1, "s" * (price.rounds != 1)
    return (
        f"cost: {price.rounds} round{plural}; each rank sends at most {price.messages} messages and "
        f"{price.bytes / size:.4g} S, and reduces at most {price.reduced / size:.4g} S\n"
        f"      S = {human_size(nbytes)}: {human_time(price.seconds)} with α = {network.alpha:g} s, "
        f"β = {network.beta:g} s/B, γ = {network.gamma:g} s/B, gap = {network.gap:g} s"
    )
