"""Draws the pictures of docs/concepts.md. `make docs` runs this script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))
from matplotlib.patches import FancyBboxPatch  # noqa: E402
from plot_styles import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY  # noqa: E402

from ringcomm._src.cli.plotting import make_figure  # noqa: E402

RANKS = (BLUE, ORANGE, GREEN, PURPLE)  # colours of ranks 0 to 3
GREY, PALE = "#d0d0d0", "#f2f2f2"


def canvas(height: float) -> tuple[Any, Any]:
    """Returns a figure and its axes. The unit is a hundredth of the width, and y goes down."""
    figure = make_figure(8.0, height)
    axes = figure.subplots()
    axes.set_xlim(0, 100)
    axes.set_ylim(12.5 * height, 0)
    axes.set_axis_off()
    return figure, axes


def box(axes: Any, x: float, y: float, width: float, height: float, text: str = "", color: str = PALE) -> None:
    """Draws a box with its top left corner at (x, y); the text is white on dark colours."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.8", "facecolor": color, "edgecolor": "white"}
    axes.add_patch(FancyBboxPatch((x, y), width, height, **style))
    tint = "white" if color in (BLUE, GREEN, BLACK) else "black"
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9, color=tint)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], both: bool = False) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "<->" if both else "->", "color": "#444444"})


def note(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 9} | style)


def ranks() -> Any:
    figure, axes = canvas(2.2)
    for host in range(2):
        left = 2 + 52 * host
        box(axes, left, 1, 44, 25)
        note(axes, left + 22, 3.5, f"host {'ab'[host]}")
        for local in range(2):
            rank = 2 * host + local
            box(axes, left + 2 + 21 * local, 6, 19, 11, f"rank {rank}\nlocal rank {local}", RANKS[rank])
        box(axes, left + 2, 19, 40, 5, "memory that the ranks of the host share", GREY)
    arrow(axes, (46.3, 12), (53.7, 12), both=True)
    note(axes, 50, 9, "MPI", fontsize=8)
    return figure


def data() -> Any:
    figure, axes = canvas(2.4)
    for rank, color in enumerate(RANKS):
        box(axes, 10 + 20 * rank, 4, 20, 5, "a quarter of the data", color)
        arrow(axes, (20 + 20 * rank, 9.5), (13.5 + 24.5 * rank, 15))
        box(axes, 3 + 24.5 * rank, 15.5, 21, 12)
        note(axes, 13.5 + 24.5 * rank, 18, f"rank {rank}")
        box(axes, 5 + 24.5 * rank, 20, 17, 5.5, "all weights", GREY)
    note(axes, 50, 1.8, "the data of one epoch")
    return figure


def all_reduce() -> Any:
    figure, axes = canvas(2.2)
    before = ((1, 5), (2, 6), (3, 7), (6, 2))
    for rank, values in enumerate(before):
        left = 8 + 23 * rank
        note(axes, left + 7.5, 2, f"rank {rank}")
        for number, value in enumerate(values):
            box(axes, left + 7.5 * number, 4, 7, 5.5, str(value), RANKS[rank])
            box(axes, left + 7.5 * number, 19, 7, 5.5, ("3", "5")[number], GREY)
        axes.plot([left + 7, left + 7], [10, 11.5], color="#444444", linewidth=1)
    box(axes, 6, 11.5, 86, 5, "all-reduce: the average of all arrays, to all ranks", SKY)
    for rank in range(4):
        arrow(axes, (15 + 23 * rank, 16.5), (15 + 23 * rank, 18.9))
    return figure


def step() -> Any:
    figure, axes = canvas(2.2)
    note(axes, 9, 8, "computation", ha="right")
    note(axes, 9, 17, "all-reduce", ha="right")
    bars: Sequence[tuple[float, float, str, str]] = (
        (10, 22, "forward", BLUE),
        (32, 14, "backward", ORANGE),
        (46, 14, "backward", ORANGE),
        (60, 14, "backward", ORANGE),
        (74, 10, "wait", GREY),
        (84, 12, "update", PURPLE),
    )
    for x, width, text, color in bars:
        box(axes, x, 5, width - 0.4, 6, text, color)
    for number, x in enumerate((46, 60, 74)):
        box(axes, x, 14, 10 - 0.4, 6, f"bucket {number}", GREEN)
        arrow(axes, (x - 0.8, 11.2), (x + 0.2, 14.2))
    arrow(axes, (10, 22.5), (96, 22.5))
    note(axes, 53, 24.8, "time of one step, the same on every rank")
    arrow(axes, (74, 2.8), (74, 5))
    note(axes, 74, 1.3, "step() is called")
    return figure


def cells(axes: Any, x: float, rows: Sequence[str]) -> None:
    """Draws a row of blocks for each rank: the letter of the rank from which it is, or Σ for a sum."""
    for rank, row in enumerate(rows):
        for number, letter in enumerate(row):
            color = {"Σ": GREY, " ": PALE}.get(letter) or RANKS["abc".index(letter)]
            box(axes, x + 2.8 * number, 5 + 6 * rank, 2.6, 5, letter, color)


def collectives() -> Any:
    figure, axes = canvas(2.2)
    pictures = {
        "broadcast (root 0)": (("aaa", "   ", "   "), ("aaa", "aaa", "aaa")),
        "all-gather": (("a  ", " b ", "  c"), ("abc", "abc", "abc")),
        "reduce-scatter": (("aaa", "bbb", "ccc"), ("Σ  ", " Σ ", "  Σ")),
        "all-to-all": (("aaa", "bbb", "ccc"), ("abc", "abc", "abc")),
    }
    for number, (name, (before, after)) in enumerate(pictures.items()):
        x = 4 + 24.5 * number
        note(axes, x + 10, 2, name)
        cells(axes, x, before)
        cells(axes, x + 12, after)
        arrow(axes, (x + 8.4, 13.5), (x + 12, 13.5))
    for rank in range(3):
        note(axes, 3.5, 7.5 + 6 * rank, f"{rank}", ha="right")
    return figure


def slow_rank() -> Any:
    figure, axes = canvas(2.5)
    for left, title, waits in ((4, "synchronous: each step waits", True), (54, "LocalSGD at fixed times", False)):
        note(axes, left + 21, 2, title)
        for rank in range(3):
            y, length = 5 + 6.5 * rank, 12 if rank == 2 else 4
            note(axes, left - 1, y + 2.5, str(rank), ha="right")
            if waits:
                for turn in range(3):
                    box(axes, left + 13 * turn, y, length - 0.3, 5, "", RANKS[rank])
                    if length < 12:
                        box(axes, left + 13 * turn + length, y, 12 - length - 0.3, 5, "wait", GREY)
            else:
                for turn in range(3 if rank == 2 else 9):
                    x = left + 13 * turn if rank == 2 else left + 13 * (turn // 3) + 4 * (turn % 3)
                    box(axes, x, y, length - 0.3, 5, "", RANKS[rank])
        for end in (12.35, 25.35, 38.35):
            axes.plot([left + end] * 2, [4.4, 24.5], color=BLACK, linewidth=1)
    note(axes, 50, 28, "boxes: steps of ranks 0 to 2; black lines: exchanges between all ranks")
    return figure


PICTURES = {
    "1_ranks": ranks,
    "2_data": data,
    "3_all_reduce": all_reduce,
    "4_step": step,
    "5_collectives": collectives,
    "6_slow_rank": slow_rank,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().savefig(DOCS / "images" / f"concept-{name}.png", dpi=100)
