"""Draws schedules of many ranks in about 1000 pixels: one rank's blocks, or ranks by rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.cli import picture
from ringcomm._src.cli.picture import EDGE, INK, PALE, RECEIVED, REDUCED, colour
from ringcomm._src.cli.show_text import step_lines
from ringcomm._src.cli.values import Labels
from ringcomm._src.core import _core
from ringcomm._src.core._core import Schedule

WIDTH = 9.0  # inches
ROW = 0.27  # height of a block or cell, in inches
LINE = 0.15  # height of a line of text
LETTER = 0.068  # width of a letter
MOST_ROUNDS = 32  # in a picture; --rounds selects others


def figure_of(schedules: Sequence[Schedule], rounds: range, rank: int | None, labels: Labels | None) -> Any:
    """Returns the picture: of all ranks if they fit, else of `rank`, or a compact form of all."""
    if rank is None and picture.fits(schedules, labels):
        return picture.make(schedules, rounds, labels)
    if rank is not None or schedules[0].symmetry != "none" or labels:
        return rank_view(schedules, rounds, rank or 0, labels)
    return matrix(schedules, rounds)


def _begin(height: float, schedule: Schedule, what: str, rounds: range, shown: range) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    top = 0.75
    figure = Figure(figsize=(WIDTH, height + top + 0.15), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(-height - 0.15, top)
    axes.axis("off")
    axes.text(
        0.15, 0.5, f"{schedule.collective} by {schedule.algorithm}, {schedule.size} ranks", fontsize=12, color=INK
    )
    if len(shown) < len(rounds):
        what += f"; rounds {shown[0]} to {shown[-1]}, --rounds draws others"
    axes.text(0.15, 0.25, what, fontsize=8, color=PALE)
    return figure, axes


def rank_view(schedules: Sequence[Schedule], rounds: range, rank: int, labels: Labels | None = None) -> Any:
    """Returns a figure of one rank's blocks before and after its rounds, with its messages."""
    own, shown = schedules[rank], rounds[:MOST_ROUNDS]
    complete = _core.follow(schedules)[rank]
    complete = complete + complete[-1:] * (rounds.stop + 1 - len(complete))
    what = f"the blocks of rank {rank} and its messages"
    if own.symmetry != "none":
        what += f"; other ranks do the same with block numbers and peers shifted ({own.symmetry})"
    texts = [step_lines(own.rounds[i] if i < len(own.rounds) else [], own.blocks) for i in shown]
    beside = max(map(len, texts), default=0) <= 3 and max([len(line) for lines in texts for line in lines] or [0]) <= 24
    gaps = [0.27 if beside else max(0.27, LINE * len(lines) + 0.1) for lines in texts]
    lines_of_label = 1 + max([t.count("\n") for m in labels for t in m[rank]]) if labels else 1
    tall = ROW + 0.13 * (lines_of_label - 1)
    figure, axes = _begin(sum(gaps) + tall * (len(shown) + 1) + 0.2, own, what, rounds, shown)
    count = len(complete[0])
    left = 0.85
    cell = min(0.45 if not labels else 1.2, (WIDTH - left - 0.3) / max(1, count))
    for block in range(count if cell >= 0.13 else 0):
        name = str(block) if block < own.blocks else f"t{block - own.blocks}"
        axes.text(left + (block + 0.5) * cell, 0.04, name, fontsize=6.5, color=PALE, ha="center")
    y, ends = 0.0, {max(len(one.rounds) for one in schedules): "end", 0: "start"}
    for position, moment in enumerate(range(shown.start, shown.stop + 1)):
        for block, share in enumerate(complete[moment]):
            text = labels[moment][rank][block] if labels else str(round(share * own.size)) if share else ""
            _box(axes, left + block * cell, y - tall, cell, tall, share, text)
        if moment in ends:
            axes.text(left - 0.1, y - tall / 2, ends[moment], ha="right", va="center", fontsize=8)
        y -= tall
        if position < len(shown):
            axes.text(
                left - 0.1, y - gaps[position] / 2, f"round {moment}", ha="right", va="center", fontsize=8, color=PALE
            )
            for number, line in enumerate(texts[position]):
                tint = (
                    INK
                    if line[0] not in "→←"
                    else "#5a645a"
                    if line[0] == "→"
                    else REDUCED
                    if "+" in line
                    else RECEIVED
                )
                x, down = (2.0 * number, gaps[position] / 2) if beside else (0.0, 0.05 + LINE * (number + 0.5))
                axes.text(left + x, y - down, line, va="center", fontsize=8, color=tint)
            y -= gaps[position]
    return figure


def _box(axes: Any, x: float, y: float, width: float, height: float, share: float, text: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour(share), edgecolor=EDGE, linewidth=0.5))
    longest = max(len(line) for line in text.split("\n"))
    if text and longest * LETTER * 0.8 < width:
        style = {"ha": "center", "va": "center", "fontsize": 7 if longest * LETTER < width else 5.5}
        axes.text(x + width / 2, y + height / 2, text, color="white" if share == 1 else INK, **style)


def matrix(schedules: Sequence[Schedule], rounds: range) -> Any:
    """Returns a figure of rounds by ranks: the colour is a rank's completeness after the round."""
    shown, first = rounds[:MOST_ROUNDS], schedules[0]
    complete = _core.follow(schedules)
    left = 0.85
    cell = (WIDTH - left - 0.2) / first.size
    texts = [[_peers(s, i) if cell >= 0.3 else [_direction(s, i)] for s in schedules] for i in shown]
    heights = [0.1 + LINE * max(1, *(len(lines) for lines in row)) for row in texts]
    meaning = "↑ sends, ↓ receives, ↕ both" if cell < 0.3 else "→ to, ← from, ←+ received and reduced"
    what = f"{meaning}; colour: completeness of the rank's blocks after the round, from white to dark green"
    figure, axes = _begin(sum(heights) + 0.2, first, what, rounds, shown)
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * cell >= 0.22)
    for rank in range(0, first.size, step):
        axes.text(left + (rank + 0.5) * cell, 0.04, str(rank), fontsize=6.5, color=PALE, ha="center")
    axes.text(left - 0.1, 0.04, "rank", fontsize=6.5, color=PALE, ha="right")
    y = 0.0
    for index, row, height in zip(shown, texts, heights, strict=True):
        y -= height
        axes.text(left - 0.1, y + height / 2, f"round {index}", ha="right", va="center", fontsize=8, color=PALE)
        for rank, lines in enumerate(row):
            moments = complete[rank]
            blocks = moments[min(index + 1, len(moments) - 1)][: first.blocks]
            _cell(axes, left + rank * cell, y, cell, height, sum(blocks) / max(1, len(blocks)), lines)
    return figure


def _cell(axes: Any, x: float, y: float, width: float, height: float, share: float, lines: Sequence[str]) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour(share), edgecolor=EDGE, linewidth=0.3))
    if width >= 0.06:
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5 if width >= 0.13 else 4.5}
        axes.text(x + width / 2, y + height / 2, "\n".join(lines), color="white" if share == 1 else INK, **style)


def _peers(schedule: Schedule, index: int) -> list[str]:
    """Returns a rank's peers of a round, one line for each kind of step."""
    steps = schedule.rounds[index] if index < len(schedule.rounds) else []
    lines: list[str] = []
    for kind, sign in (("send", "→"), ("receive", "←"), ("reduce", "←+")):
        peers = list(dict.fromkeys(step.peer for step in steps if step.kind == kind))
        if peers:
            lines.append(sign + (",".join(map(str, peers)) if len(peers) <= 2 else f"{len(peers)} ranks"))
    return lines


def _direction(schedule: Schedule, index: int) -> str:
    kinds = {step.kind for step in (schedule.rounds[index] if index < len(schedule.rounds) else [])}
    sends, receives = "send" in kinds, bool(kinds & {"receive", "reduce"})
    return "↕" if sends and receives else "↑" if sends else "↓" if receives else ""
