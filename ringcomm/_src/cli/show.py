"""Implements `ringcomm show`: prints a schedule as a table, the prover's verdict, and the cost."""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
from collections.abc import Sequence

from ringcomm._src.algorithms.registry import registered
from ringcomm._src.base.installed import lacks
from ringcomm._src.cli.sizes import human_size, human_time, parse_size
from ringcomm._src.cli.text import refuse, runs
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core
from ringcomm._src.core._core import Network, Schedule, Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("algorithm", nargs="?", help="its name; without one, the algorithms there are")
    add("--collective", default="allreduce", choices=_core.COLLECTIVES)
    add("--topology", metavar="NAME", help="show a graph of gossip instead: who averages with whom")
    add("--ranks", type=int, default=8, help="number of ranks (default 8)")
    add("--root", type=int, default=0, help="of broadcast, reduce and rooted algorithms")
    add("--file", metavar="FILE.py", help="run this file first: it may register algorithms of your own")
    add("--cost", action="store_true", help="only what it costs and whether it is proved, no table")
    add("--output", metavar="FILE.png", help="also draw it (png, svg or pdf; needs matplotlib)")
    add("--size", type=parse_size, default=16 << 20, help="bytes to price it for (default 16M)")
    for name, what in (
        ("alpha", "until a short message has come"),
        ("beta", "per byte sent"),
        ("gap", "for each further message of a round"),
        ("gamma", "per byte reduced"),
    ):
        add(f"--{name}", type=float, default=NETWORK[name], help=f"seconds {what} (default {NETWORK[name]:g})")


def run(options: argparse.Namespace) -> int:
    if not options.topology and not options.algorithm:
        print(listing())
        return 0
    if options.output and (trouble := lacks("matplotlib", "--output")):
        return refuse("show", trouble)
    if options.topology:
        from ringcomm._src.cli import graph

        return graph.show(options.topology, options.ranks, options.file, options.output)
    if not 1 <= options.ranks <= 1024 or not 0 <= options.root < options.ranks:
        return refuse("show", "--ranks is 1 to 1024, and --root one of the ranks")
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
        print(f"drawn to {options.output}")
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
    """Returns the schedules of all ranks, from a built-in algorithm or from one that `file` registers.

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
    """Returns the schedules of all ranks as a table, ranks across and rounds down, with the prover's verdict.

    `schedules[r]` is rank r's. In a cell, ``→3 [0-2]`` sends blocks 0 to 2 to rank 3, ``←5 [1]`` receives block 1
    from rank 5, and ``←5 +[1]`` receives from rank 5 and reduces into block 1. Scratch blocks are written t0, t1 ...
    If `width` is given, ranks that do not fit into that number of columns are left out, and a line names them.
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
        f"{f', symmetric by {first.symmetry}' if first.symmetry != 'none' else ''}"
    )
    why = _core.prove(schedules)
    verdict = (
        "proved: no deadlock, every contribution exactly once, one operand order"
        if why is None
        else f"NOT PROVED: {why}"
    )
    return f"{head}\n{verdict}"


def _fitting(table: list[str], width: int | None) -> list[str]:
    """Returns the columns that fit, and a line that names the ranks that are left out."""
    ranks = table[0].count("rank ")
    if width is None or max(map(len, table)) <= width:
        return table
    ends = [at for at, letter in enumerate(table[1]) if letter == "+"]  # the crossings in the rule, where columns end
    fit = sum(end <= width for end in ends[1:])
    cut = [line[: ends[fit] if fit else width].rstrip() for line in table]
    what = f"ranks {fit} to {ranks - 1} are" if 0 < fit < ranks - 1 else f"rank {ranks - 1} is" if fit else "much is"
    return [*cut, f"      {what} not shown, for this terminal has {width} columns: '| less -S' shows everything"]


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
    takes: dict[tuple[int, str], list[int]] = {}
    local: list[str] = []
    for step in steps:
        if step.kind == "send":
            sends.setdefault(step.peer, []).append(step.block)
        elif step.kind in ("receive", "reduce"):
            takes.setdefault((step.peer, "+" if step.kind == "reduce" else ""), []).append(step.block)
        else:
            sign = "=" if step.kind == "copy" else "+="
            local.append(f"[{_ranges([step.block], blocks)}] {sign} [{_ranges([step.source], blocks)}]")
    alike: dict[tuple[str, str], list[int]] = {}  # peers with the same blocks share a line
    for peer, listed in sends.items():
        alike.setdefault(("→", f"[{_ranges(listed, blocks)}]"), []).append(peer)
    for (peer, sign), listed in takes.items():
        alike.setdefault(("←", f"{sign}[{_ranges(listed, blocks)}]"), []).append(peer)
    return [f"{arrow}{_ranges(sorted(peers))} {what}" for (arrow, what), peers in alike.items()] + local


def _ranges(numbers: Sequence[int], blocks: int = sys.maxsize) -> str:
    """Formats block numbers: 0,1,2,5 as "0-2,5", scratch blocks as t0, t1 ..."""
    names = [[str(n) if n < blocks else f"t{n - blocks}" for n in (run[0], run[-1])] for run in runs(numbers, blocks)]
    return ",".join(a if a == b else f"{a}-{b}" for a, b in names)


def network(options: argparse.Namespace) -> Network:
    given = {name: getattr(options, name) for name in ("alpha", "beta", "gap", "gamma")}
    return Network(**(NETWORK | given))


def cost(schedules: Sequence[Schedule], nbytes: int, network: Network) -> str:
    """Returns two lines: the cost of the busiest rank as fractions of the buffer size S, and the predicted time.

    The time is for one segment, with each rank on a separate host.
    """
    price = _core.price(schedules, nbytes, network)
    whole, plural = nbytes or 1, "s" * (price.rounds != 1)
    return (
        f"cost: {price.rounds} round{plural}; at most {price.messages} messages and {price.bytes / whole:.4g} S sent, "
        f"{price.reduced / whole:.4g} S reduced by one rank\n"
        f"      S = {human_size(nbytes)}: {human_time(price.seconds)} at α = {network.alpha:g} s, "
        f"β = {network.beta:g} s/B, γ = {network.gamma:g} s/B, {network.gap:g} s a further message"
    )
