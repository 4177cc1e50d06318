"""Draws a step of a pipeline: the computations of each rank, and its waits for messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

COLOURS = {"forward": "#4878a8", "backward": "#6aa84f", "wait": "#d9d9d9"}


def waits(timeline: Path) -> list[tuple[float, float]]:
    """Returns (begin, end) of the waits in a rank's timeline, in seconds."""
    events = [event for event in json.loads(timeline.read_text()) if event.get("cat") == "message wait"]
    begins = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    return [(begins[event["id"]] * 1e-6, event["ts"] * 1e-6) for event in events if event["ph"] == "e"]


def draw(file: str, computed: Sequence[tuple[str, float, float]], title: str) -> None:
    """Draws all ranks' rows, on rank 0; the ranks share a host. Collective."""
    timeline = Path(f"{file}.{dist.get_rank()}.json")
    rows = [*computed, *(("wait", begin, end) for begin, end in waits(timeline))]
    timeline.unlink()
    everybody = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(rows, everybody)
    if everybody is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    first = min(begin for each in everybody for _, begin, _ in each)
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.6 * len(everybody)), layout="constrained")
    for rank, each in enumerate(everybody):
        for what, colour in COLOURS.items():
            spans = [((begin - first) * 1e3, (end - begin) * 1e3) for name, begin, end in each if name == what]
            height = 0.3 if what == "wait" else 0.8
            axes.broken_barh(
                spans,
                (rank - height / 2, height),
                color=colour,
                edgecolor="white",
                linewidth=0.5,
                label=what if rank == 0 else None,
            )
    axes.set_yticks(range(len(everybody)), [f"rank {rank}" for rank in range(len(everybody))])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(title)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=len(COLOURS), frameon=False)
    figure.savefig(file, dpi=120)
