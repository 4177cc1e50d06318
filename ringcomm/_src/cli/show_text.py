"""Formats schedules for `ringcomm show`: tables of steps and of values, the verdict, the cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ringcomm._src.cli.sizes import human_size, human_time
from ringcomm._src.cli.text import runs
from ringcomm._src.core import _core
from ringcomm._src.core._core import Network, Schedule, Step


def describe(
    schedules: Sequence[Schedule],
    width: int | None = None,
    rounds: range | None = None,
    ranks: Sequence[int] | None = None,
) -> str:
    """Returns a table of the schedules (a column per rank, a row per round) and the verdict.

    `schedules[r]` is rank r's. In a cell, ``→3 [0-2]`` sends blocks 0 to 2 to rank 3, ``←5 [1]``
    receives block 1 from rank 5, and ``←5 +[1]`` receives from rank 5 and reduces into block 1.
    Scratch blocks are written t0, t1 ... If `width` is given, ranks that do not fit into that
    number of columns are left out, and a line names them. `rounds`, `ranks`: None for all.
    """
    head, verdict = summary(schedules).split("\n")
    return "\n".join([head, "", *_fitting(_table(schedules, rounds, ranks), width), "", verdict])


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


def _table(schedules: Sequence[Schedule], rounds: range | None, ranks: Sequence[int] | None) -> list[str]:
    rounds = range(max(len(s.rounds) for s in schedules)) if rounds is None else rounds
    shown = schedules if ranks is None else [schedules[rank] for rank in ranks]
    cells = [[step_lines(s.rounds[i] if i < len(s.rounds) else [], s.blocks) for s in shown] for i in rounds]
    return _aligned("round", [str(i) for i in rounds], [s.rank for s in shown], cells)


def value_table(
    labels: Sequence[Sequence[Sequence[str]]], rounds: range, ranks: Sequence[int] | None, width: int | None
) -> list[str]:
    """Returns a table of the blocks' values before the rounds and after each of them."""
    chosen = range(len(labels[0])) if ranks is None else ranks
    moments = [rounds.start, *(index + 1 for index in rounds)]
    cells = [[["  ".join(text.replace("\n", "") for text in labels[m][rank])] for rank in chosen] for m in moments]
    names = [f"after {moment - 1}" if moment else "start" for moment in moments]
    return _fitting(_aligned("values", names, chosen, cells), width)


def _aligned(corner: str, names: Sequence[str], ranks: Sequence[int], cells: list[list[list[str]]]) -> list[str]:
    """Returns the lines of a table with a column per rank. A cell is a list of lines."""
    first = max(len(name) for name in (corner, *names))
    widths = [max([len(f"rank {r}"), *(len(line) for row in cells for line in row[i])]) for i, r in enumerate(ranks)]
    rule = "-" * first + "-+-" + "-+-".join("-" * w for w in widths)
    head = " | ".join(f"rank {r}".ljust(w) for r, w in zip(ranks, widths, strict=True))
    lines = [f"{corner:>{first}} | {head}".rstrip(), rule]
    for name, row in zip(names, cells, strict=True):
        for line in range(max(len(cell) for cell in row) or 1):
            texts = [(cell[line] if line < len(cell) else "").ljust(w) for cell, w in zip(row, widths, strict=True)]
            lines.append(f"{name if line == 0 else '':>{first}} | " + " | ".join(texts).rstrip())
        lines.append(rule)
    return lines[:-1] if cells else [*lines, "      (no messages)"]


def step_lines(steps: Sequence[Step], blocks: int) -> list[str]:
    """Returns a rank's steps of a round as lines of text."""
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
