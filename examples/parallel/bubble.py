"""Draws the steps that `pipeline.py --record` has written: one panel for each schedule.

    python examples/parallel/bubble.py steps.json pipeline.png

Each panel has a row for each rank. A box is a computation, with the number of its micro-batch; a
grey bar is a wait for a message. Idle time is white or grey.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

COLOURS = {"forward": "#0072B2", "backward": "#E69F00", "weight": "#009E73", "wait": "#d0d0d0"}
TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "zb": "zero bubble"}

Row = tuple[str, int, float, float]  # kind, number of the micro-batch, begin and end in seconds
Step = list[list[Row]]  # the rows of each rank


def waits(timeline: Path) -> list[Row]:
    """Returns the waits for messages in a rank's timeline."""
    events = [event for event in json.loads(timeline.read_text()) if event.get("cat") == "message wait"]
    begins = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    return [("wait", 0, begins[event["id"]] * 1e-6, event["ts"] * 1e-6) for event in events if event["ph"] == "e"]


def length(step: Step) -> float:
    """Returns the time from the first begin of a row of any rank to the last end."""
    return max(end for rows in step for *_, end in rows) - min(begin for rows in step for _, _, begin, _ in rows)


def idle(step: Step) -> list[float]:
    """Returns the share of the step in which each rank computes nothing."""
    busy = [sum(end - begin for what, _, begin, end in rows if what != "wait") for rows in step]
    return [1 - one / length(step) for one in busy]


def record(file: Path, schedule: str, micro_batches: int, stages: int, steps: Sequence[list[Row]]) -> None:
    """Adds the step with the median bubble to the file. Collective: `steps` are those of one rank."""
    ranks: Any = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(steps, ranks)
    if ranks is None:
        return
    found = sorted(map(list, zip(*ranks, strict=True)), key=lambda step: statistics.fmean(idle(step)))
    bubbles = [round(statistics.fmean(idle(step)), 4) for step in found]
    step = found[len(found) // 2]
    first = min(begin for rows in step for _, _, begin, _ in rows)
    rows = [[(what, n, round(a - first, 6), round(b - first, 6)) for what, n, a, b in one] for one in step]
    entry = {"micro_batches": micro_batches, "stages": stages, "bubbles": bubbles, "step": rows}
    document = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(document | {schedule: entry}) + "\n")
    quarter, _, three = statistics.quantiles(bubbles)
    print(f"{schedule}: bubble {bubbles[len(bubbles) // 2]:.1%}, quartiles {quarter:.1%} and {three:.1%}")


def draw(document: dict[str, Any], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    heights = [len(entry["step"]) for entry in document.values()]
    figure, panels = pyplot.subplots(
        len(heights), 1, sharex=True, squeeze=False, figsize=(8, 0.7 + 0.7 * sum(heights)), layout="constrained"
    )
    for axes, (schedule, entry) in zip(panels[:, 0], document.items(), strict=True):
        step, m, p = entry["step"], entry["micro_batches"], entry["stages"]
        for rank, rows in enumerate(step):
            for what, number, begin, end in rows:
                height = 0.3 if what == "wait" else 0.84
                width = (end - begin) * 1e3
                axes.barh(rank, width, height, left=begin * 1e3, color=COLOURS[what], edgecolor="white", linewidth=0.6)
                if what != "wait":
                    middle, colour = (begin + end) * 500, "black" if what == "backward" else "white"
                    axes.text(middle, rank, str(number + 1), ha="center", va="center", fontsize=8, color=colour)
        axes.set_yticks(range(len(step)), [f"rank {rank}\nidle {share:.0%}" for rank, share in enumerate(idle(step))])
        axes.tick_params(axis="y", length=0, labelsize=9)
        axes.invert_yaxis()
        axes.spines[["top", "right", "left"]].set_visible(False)
        theory = f", in theory {(p - 1) / (m + p - 1):.0%}" if p == len(step) else ""
        bubble = statistics.fmean(idle(step))
        axes.set_title(f"{TITLES[schedule]}: bubble {bubble:.0%}{theory}; {length(step) * 1e3:.0f} ms", fontsize=10)
    panels[-1, 0].set_xlabel("ms since the step began")
    present = {what for entry in document.values() for rows in entry["step"] for what, *_ in rows}
    shown = {what: colour for what, colour in COLOURS.items() if what in present}
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in shown.values()]
    labels = ["waits for a message" if what == "wait" else what for what in shown]
    figure.legend(patches, labels, loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
