"""Draws a schedule for `ringcomm show --output`.

Ranks are drawn from left to right, and rounds from top to bottom. The colour of a block shows its
completeness: the fraction of the ranks' contributions that it contains. Messages are arrows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from ringcomm._src.algorithms.messages import Message, messages
from ringcomm._src.cli.text import runs
from ringcomm._src.cli.values import Labels
from ringcomm._src.core import _core
from ringcomm._src.core._core import Schedule

REDUCING = ("allreduce", "reduce", "reducescatter", "barrier", "scan", "exscan")
WIDEST = 16.0  # largest width of all ranks together
LETTER = 0.068  # width of a letter in a block
REDUCED, RECEIVED = "#d9660f", "#2f6fb5"  # colours of arrows
EDGE, INK, PALE = "#9aa39a", "#1c241c", "#6b746b"
HEIGHT = 0.30  # height of a block with one line of text; all lengths in this file are in inches


class _Grid:
    """The positions: x grows with blocks and ranks, y falls with rounds."""

    def __init__(
        self, schedules: Sequence[Schedule], rounds: range | None = None, labels: Labels | None = None
    ) -> None:
        self.schedules, self.labels = schedules, labels
        complete = _core.follow(schedules)
        self.every = max(map(len, complete)) - 1
        self.shown = range(self.every) if rounds is None else rounds
        self.moments = range(self.shown.start, self.shown.stop + 1)
        of_all = messages(schedules)
        self.messages = [m for m in of_all if m.sent in self.shown and m.received in self.shown]
        # Completeness by rank, round and block. It stays constant after a rank's last round.
        self.complete = [moments + moments[-1:] * (self.every + 1 - len(moments)) for moments in complete]
        self.blocks = max(len(moments[0]) for moments in complete)
        ranks = len(schedules)
        self.cell = min(0.38, max(0.10, 11.5 / (ranks * max(self.blocks, 1))))
        self.tall = HEIGHT
        if labels:
            texts = [text for of_ranks in labels for blocks in of_ranks for text in blocks]
            self.cell = max(0.26, 0.06 + LETTER * max(len(line) for text in texts for line in text.split("\n")))
            self.tall += 0.13 * max(text.count("\n") for text in texts)
        self.strip = self.cell * self.blocks
        self.column = self.strip + max(0.28, self.cell * 0.9 if not labels else 0)
        fan = max((sum(m.sent == i for m in of_all) for i in range(self.every)), default=0) / ranks
        self.pitch = self.tall + 0.50 + 0.16 * min(fan, 5)
        self.width = self.column * ranks
        self.height = self.pitch * len(self.shown) + self.tall

    def y(self, moment: int) -> float:
        return -(moment - self.moments.start) * self.pitch

    def corner(self, rank: int, moment: int, block: int) -> tuple[float, float]:
        return rank * self.column + block * self.cell, self.y(moment) - self.tall

    def middle(self, rank: int, blocks: Sequence[int]) -> float:
        return rank * self.column + (sum(blocks) / len(blocks) + 0.5) * self.cell


def fits(schedules: Sequence[Schedule], labels: Labels | None = None) -> bool:
    """Returns True if all ranks fit into a picture with room for text in each block."""
    grid = _Grid(schedules, None, labels)
    return grid.cell >= 0.14 and grid.width <= WIDEST


def make(schedules: Sequence[Schedule], rounds: range | None = None, labels: Labels | None = None) -> Any:
    """Returns the picture as a matplotlib figure. `schedules[r]` is rank r's.

    Raises ImportError without matplotlib, ValueError if the schedules deadlock.

    Parameters
    ----------
    rounds : range | None
        Consecutive rounds to draw; None: all.
    labels : Labels | None
        Text of the blocks; None: how many ranks are reduced.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    grid = _Grid(schedules, rounds, labels)
    left, right, top, bottom = 1.05, 0.15, 0.95, 0.62
    legend = _Legend(grid, schedules[0])
    width, height = max(grid.width + left + right, legend.width + 0.9), grid.height + top + bottom
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    centre = grid.width / 2 + min(0.0, (right - left) / 2 + (width - grid.width - left - right) / 2)
    axes.set_xlim(centre - width / 2, centre + width / 2)
    axes.set_ylim(-grid.height - bottom, top)
    axes.axis("off")
    _labels(axes, grid, schedules[0])
    for rank in range(len(schedules)):
        for moment in grid.moments:
            _strip(axes, grid, rank, moment)
    for message in grid.messages:
        _arrow(axes, grid, message)
    _draw_legend(axes, grid, legend)
    return figure


def draw(schedules: Sequence[Schedule], path: str) -> None:
    """Writes the picture to `path`; its extension selects the format."""
    make(schedules).savefig(path, dpi=110)


def _labels(axes: Any, grid: _Grid, schedule: Schedule) -> None:
    write = partial(axes.text, ha="center", va="center", color=INK)
    rooted = f", root {schedule.root}" if schedule.collective in ("broadcast", "reduce") else ""
    title = f"{schedule.collective} by {schedule.algorithm}, {schedule.size} ranks{rooted}"
    write(grid.width / 2, 0.78, title, fontsize=13)
    for rank in range(schedule.size):
        write(rank * grid.column + grid.strip / 2, 0.40, f"rank {rank}", fontsize=9.5)
        for block in range(grid.blocks if grid.cell >= 0.14 else 0):
            name = str(block) if block < schedule.blocks else f"t{block - schedule.blocks}"
            write(grid.middle(rank, [block]), 0.12, name, fontsize=6.5, color=PALE)
    for index in grid.shown:
        y = grid.y(index) - grid.tall - (grid.pitch - grid.tall) / 2
        write(-0.18, y, f"round {index}", ha="right", fontsize=8.5, color=PALE)
    for name, first, last in phases(grid.schedules):
        first, last = max(first, grid.shown.start), min(last, grid.shown.stop - 1)
        high, low = grid.y(first) - grid.tall - 0.1, grid.y(last + 1) + 0.1
        if first <= last:
            axes.plot([-0.86, -0.86], [high, low], color=EDGE, linewidth=1.2)
            write(-0.96, (high + low) / 2 - 0.1, name, rotation=90, fontsize=8 if last > first else 6.5)
    if grid.moments.start == 0:
        write(-0.18, -grid.tall / 2, "start", ha="right", fontsize=8.5)
    if grid.every and grid.shown.stop == grid.every:
        write(-0.18, -grid.height + grid.tall / 2, "end", ha="right", fontsize=8.5)


def phases(schedules: Sequence[Schedule]) -> list[tuple[str, int, int]]:
    """Returns the phases as (name, first round, last round).

    share-reduce lasts until the last round in which a rank reduces; share-only follows. A
    collective without reductions has no phases.
    """
    rounds = max(len(schedule.rounds) for schedule in schedules)
    reducing = [
        index
        for schedule in schedules
        for index, steps in enumerate(schedule.rounds)
        if any(step.kind in ("reduce", "combine") for step in steps)
    ]
    if not reducing:
        return []
    end = max(reducing)
    return [("share-reduce", 0, end)] + ([("share-only", end + 1, rounds - 1)] if end + 1 < rounds else [])


def colour(share: float) -> tuple[float, float, float]:
    """Returns the colour for a completeness from 0 (white) through yellow to 1 (dark green)."""
    stops = [
        (0.0, (1.0, 1.0, 1.0)),
        (0.02, (1.0, 0.97, 0.80)),
        (0.6, (0.66, 0.85, 0.51)),
        (0.999, (0.42, 0.73, 0.40)),
        (1.0, (0.11, 0.47, 0.27)),
    ]
    for (low, first), (high, second) in pairwise(stops):
        if share <= high:
            t = (share - low) / (high - low)
            red, green, blue = (start + t * (end - start) for start, end in zip(first, second, strict=True))
            return red, green, blue
    return stops[-1][1]


def _strip(axes: Any, grid: _Grid, rank: int, moment: int) -> None:
    from matplotlib.patches import Rectangle

    schedule = grid.schedules[rank]
    reducing = schedule.collective in REDUCING
    for block, share in enumerate(grid.complete[rank][moment]):
        x, y = grid.corner(rank, moment, block)
        edge: dict[str, Any] = {"edgecolor": EDGE, "linewidth": 0.6, "zorder": 2}
        edge["linestyle"] = ":" if block >= schedule.blocks else "-"  # scratch
        axes.add_patch(Rectangle((x, y), grid.cell, grid.tall, facecolor=colour(share), **edge))
        text = (
            grid.labels[moment][rank][block] if grid.labels else str(round(share * schedule.size)) if reducing else ""
        )
        if text and share and grid.cell >= 0.11:
            style = {"fontsize": 7 if grid.cell >= 0.14 else 5.5, "color": "white" if share == 1 else INK}
            style |= {"ha": "center", "va": "center" if "\n" in text else "center_baseline", "zorder": 3}
            axes.text(x + grid.cell / 2, y + grid.tall / 2, text, **style)
    x, y = grid.corner(rank, moment, 0)
    axes.add_patch(Rectangle((x, y), grid.strip, grid.tall, fill=False, edgecolor="#5a645a", linewidth=0.9, zorder=4))


def _arrow(axes: Any, grid: _Grid, message: Message) -> None:
    tint = REDUCED if message.reduces else RECEIVED
    density = sum(m.sent == message.sent for m in grid.messages) / len(grid.schedules)
    style = {"linewidth": 1.1, "alpha": 0.9} if density <= 2 else {"linewidth": 0.7, "alpha": 0.65}
    for sent, received in _pairs(message):
        start = grid.middle(message.sender, sent), grid.y(message.sent) - grid.tall - 0.02
        end = grid.middle(message.receiver, received), grid.y(message.received + 1) + 0.04
        _point(axes, start, end, tint, zorder=5, **style)
    for rank, moment, blocks, below in (
        (message.sender, message.sent, message.sent_blocks, True),
        (message.receiver, message.received + 1, message.received_blocks, False),
    ):
        y = grid.y(moment) - (grid.tall + 0.02 if below else -0.02)
        for block in blocks if len(blocks) < grid.blocks else ():
            x, _ = grid.corner(rank, moment, block)
            ends = [x + 0.01, x + grid.cell - 0.01]
            axes.plot(ends, [y, y], color=tint, linewidth=1.6, zorder=5, solid_capstyle="butt")


def _point(axes: Any, start: tuple[float, float], end: tuple[float, float], tint: str, **style: Any) -> None:
    from matplotlib.patches import FancyArrowPatch

    style |= {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, color=tint, **style))


def _pairs(message: Message) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Returns the blocks at both ends of each arrow.

    Up to three runs of consecutive blocks have one arrow each. If there are more runs, or if the
    runs at the two ends differ in length, the message has a single arrow.
    """
    sent, received = runs(sorted(message.sent_blocks)), runs(sorted(message.received_blocks))
    if len(sent) <= 3 and [len(run) for run in sent] == [len(run) for run in received]:
        return list(zip(sent, received, strict=True))
    return [(message.sent_blocks, message.received_blocks)]


class _Legend:
    """The content and the width of the legend below the picture."""

    SQUARE, LETTER, ARROW = 0.14, 0.064, 0.62

    def __init__(self, grid: _Grid, schedule: Schedule) -> None:
        kinds = {message.reduces for message in grid.messages}
        self.arrows = [(REDUCED, "received and reduced")] * (True in kinds) + [(RECEIVED, "received")] * (
            False in kinds
        )
        fine = True in kinds and schedule.size <= 16
        self.steps = [k / schedule.size for k in range(schedule.size + 1)] if fine else [0.0, 1.0]
        self.text = "empty to complete"
        self.text += "; number: how many ranks are reduced" if True in kinds and not grid.labels else ""
        self.width = sum(self.ARROW + self.LETTER * len(text) for _, text in self.arrows)
        self.width += self.SQUARE * len(self.steps) + self.LETTER * (len(self.text) + 1)


def _draw_legend(axes: Any, grid: _Grid, legend: _Legend) -> None:
    from matplotlib.patches import Rectangle

    y, x = -grid.height - 0.38, grid.width / 2 - legend.width / 2
    for tint, text in legend.arrows:
        _point(axes, (x, y), (x + 0.32, y), tint)
        axes.text(x + 0.38, y, text, va="center", fontsize=8, color=INK)
        x += legend.ARROW + legend.LETTER * len(text)
    side = legend.SQUARE
    for share in legend.steps:
        axes.add_patch(Rectangle((x, y - side / 2), side, side, facecolor=colour(share), edgecolor=EDGE, linewidth=0.5))
        x += side
    axes.text(x + legend.LETTER, y, legend.text, va="center", fontsize=8, color=INK)
