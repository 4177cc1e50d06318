"""Draws the timelines of benchmarks/timeline_steps.py as Perfetto shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plot_styles import BLUE, GREEN, ORANGE, PURPLE, SKY

from ringcomm._src.cli.plotting import make_figure

Row = Sequence[Any]  # track, name, begin and duration in ms
GREY, DARK = "#8a8a8a", "#333333"
COLORS = {"queued": "#c9a227", "negotiating": ORANGE, "share-reduce": SKY, "share-only": PURPLE}


def color_of(row: Row) -> str:
    """Returns the colour of a slice; the name of a call is that of its algorithm."""
    return GREY if row[0] == "program" else COLORS.get(row[1], GREEN)


class Tracks:
    """Rows of slices below each other, with their names on the left and the time on top."""

    def __init__(self, figure: Any, axes: Any, span: tuple[float, float], names: float) -> None:
        """`span`: the shown time in ms; `names`: width of the names as a share of the slices'."""
        self._axes, self._y, self._begin, self._end = axes, 0.0, *span
        width = self._end - self._begin
        self._left = self._begin - names * width
        self._pixel = width * (1 + names) / (figure.get_figwidth() * 100)  # in ms
        axes.set_xlim(self._left, self._end)

    def header(self, text: str) -> None:
        self._axes.axhspan(self._y, self._y + 1, color="#dfe5ee", linewidth=0, zorder=3)
        self._axes.text(
            self._left + 6 * self._pixel, self._y + 0.5, text, va="center", fontsize=9, weight="bold", zorder=4
        )
        self._y += 1

    def track(self, name: str, rows: Sequence[Row], color: Callable[[Row], str] = color_of) -> None:
        axes, middle = self._axes, self._y + 0.5
        axes.text(self._left + 14 * self._pixel, middle, name, va="center", fontsize=8, color=DARK)
        shown = [row for row in rows if row[2] < self._end and row[2] + row[3] > self._begin]
        nexts = [row[2] for row in shown[1:]] + [float("inf")]
        for row, following in zip(shown, nexts, strict=True):
            _, label, begin, lasts = row
            start, end = max(begin, self._begin), min(begin + lasts, self._end)
            room = len(label) * 5.6 * self._pixel
            if lasts:
                axes.barh(middle, end - start, 0.8, left=start, color=color(row), edgecolor="white", linewidth=0.4)
            else:
                axes.plot(begin, middle, marker="^", color=DARK, markersize=5, clip_on=False)
            if end - start > room:
                axes.text((start + end) / 2, middle, label, ha="center", va="center", fontsize=7, color="white")
            elif following - end > room and (not lasts or end + room < self._end):
                side = -1 if end + room > self._end else 1
                near = (end if side > 0 else start) + side * 5 * self._pixel
                ha = "left" if side > 0 else "right"
                axes.text(near, middle, label, ha=ha, va="center", fontsize=7, color=DARK)
        self._y += 1
        axes.axhline(self._y, color="#e4e4e4", linewidth=0.7, zorder=0)

    def finish(self) -> None:
        axes = self._axes
        axes.axvspan(self._left, self._begin, color="#fafafa", zorder=-1, linewidth=0)
        axes.axvline(self._begin, color="#c0c0c0", linewidth=0.8)
        axes.set_ylim(self._y, 0)
        axes.set_yticks([])
        axes.xaxis.tick_top()
        step = next(one for one in (50, 100, 200, 500) if (self._end - self._begin) / one < 10)
        ticks = range(0, int(self._end - self._begin), step)
        axes.set_xticks([self._begin + tick for tick in ticks], [f"{tick} ms" for tick in ticks], fontsize=8)
        axes.tick_params(length=3, color="#c0c0c0")
        axes.spines[:].set_visible(False)


def steps_of(rows: Sequence[Row]) -> list[float]:
    """Returns the begins of the steps."""
    return [begin for _, name, begin, _ in rows if name == "forward"]


def plot_step(document: dict[str, Any], file: Path) -> None:
    """Draws all tracks of both ranks in one step without overlap_forward."""
    figure = make_figure(8.0, 4.6)
    axes, ranks = figure.subplots(), document["runs"]["without"]
    begin, end = (min(steps_of(rows)[step] for rows in ranks) for step in (1, 2))
    tracks = Tracks(figure, axes, (begin, end + 12), 0.36)
    for rank, rows in enumerate(ranks):
        tracks.header(f"rank {rank} (host{rank + 1})")
        inside = [row for row in rows if begin <= row[2] < end]
        inside = [row for row in inside if "present" not in row[0] and not row[0].startswith("allreduce.loss ·")]
        for name in dict.fromkeys(row[0] for row in sorted(inside, key=lambda row: (row[0] != "program", row[2]))):
            shown = "the program (not in the file)" if name == "program" else name
            tracks.track(shown, [row for row in inside if row[0] == name])
    tracks.finish()
    figure.savefig(file, dpi=150)


def plot_overlap(document: dict[str, Any], file: Path) -> None:
    """Draws the passes and the reductions of two steps: first without, then with overlap_forward."""
    figure = make_figure(8.0, 2.9)
    axes = figure.subplots()
    runs = {name: ranks[0] for name, ranks in document["runs"].items()}
    longest = max(steps_of(rows)[2] - steps_of(rows)[0] for rows in runs.values())
    tracks = Tracks(figure, axes, (0, longest * 1.02), 0.23)
    for name, rows in runs.items():
        begins = steps_of(rows)
        rows = [[track, label, begin - begins[0], lasts] for track, label, begin, lasts in rows]
        backwards = [begin for _, label, begin, _ in rows if label == "backward"]
        length = (begins[2] - begins[0]) / 2

        def of_step(row: Row, program: Sequence[float] = steps_of(rows), backwards: Sequence[float] = backwards) -> str:
            """Returns the colour of the step to which these gradients or passes belong."""
            starts = program if row[0] == "program" else backwards
            count = sum(start <= row[2] + 1 for start in starts)
            return (GREY, BLUE, ORANGE, GREY)[min(count, 3)]

        how = "overlap_forward=True" if name == "overlap_forward" else "the default: step() waits for all gradients"
        tracks.header(f"{how}; {length:.0f} ms a step")
        tracks.track("program", [row for row in rows if row[0] == "program"], of_step)
        calls = [[track, "", *times] for track, _, *times in rows if track.startswith("plan/") and is_call(track)]
        tracks.track("all-reduce of buckets", calls, of_step)
    tracks.finish()
    figure.savefig(file, dpi=150)


def is_call(track: str) -> bool:
    """Returns True for the track of a bucket; others are its lanes, and the plan's agreements."""
    return track.rpartition("/")[2].isdigit()
