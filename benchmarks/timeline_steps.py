"""Records timelines of two ranks' steps, with and without overlap_forward: docs/timeline.md.

    python benchmarks/cluster.py --hosts 2 --rate 200mbit -- python benchmarks/timeline_steps.py \\
        --json benchmarks/results/timeline_steps.json

One rank per host, one thread per rank. The model is a chain of linear layers, and the batch is so
large that computation takes about as long as communication. The file has the events of each rank's
tracks, and the passes of the program, which the timeline does not record.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import machine
from torch import nn

import ringcomm.torch as hvd
from ringcomm._src.cli.measured import now

WIDTH, LAYERS, BATCH = 640, 5, 2048
WARM, KEPT = 8, 3  # steps before the recorded ones, and recorded ones

Row = list[Any]  # track, name, begin and duration in ms


def train(overlap: bool) -> tuple[list[Row], list[dict[str, Any]]]:
    """Returns the passes of the last steps, and the events of the timeline. Collective."""
    torch.manual_seed(1)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters(), overlap_forward=overlap
    )
    data, passes = torch.randn(BATCH, WIDTH), []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(WARM + KEPT):
            if step == WARM:
                hvd.start_timeline(f"{folder}/{{rank}}.json")
            times = [time.monotonic()]
            optimizer.zero_grad()
            loss = F.mse_loss(model(data), data)
            times.append(time.monotonic())
            loss.backward()
            times.append(time.monotonic())
            optimizer.step()
            hvd.allreduce(loss.detach(), name="loss")
            times.append(time.monotonic())
            spans = zip(("forward", "backward", "step()"), times, times[1:], strict=False)
            passes += [["program", name, begin * 1e3, (end - begin) * 1e3] for name, begin, end in spans]
        if overlap:
            optimizer.complete()
        hvd.stop_timeline()
        events = json.loads(Path(folder, f"{hvd.rank()}.json").read_text())
    return passes[-3 * KEPT :], events


def rows_of(events: list[dict[str, Any]]) -> list[Row]:
    """Returns the events with a duration and the moments, in the order of their tracks."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    shown = sorted((event for event in events if event["ph"] in "Xi"), key=lambda event: (event["tid"], event["ts"]))
    return [[names[one["tid"]], one["name"], one["ts"] / 1e3, one.get("dur", 0) / 1e3] for one in shown]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    document: dict[str, Any] = {"date": now(), "machine": machine(), "runs": {}}
    for overlap in (False, True):
        passes, events = train(overlap)
        ranks = hvd.allgather_object(passes + rows_of(events))  # the hosts share a clock
        first = min(rows[0][2] for rows in ranks)
        document["runs"]["overlap_forward" if overlap else "without"] = [
            [[track, name, round(begin - first, 2), round(lasts, 2)] for track, name, begin, lasts in rows]
            for rows in ranks
        ]
        if hvd.rank() == 0:
            steps = [begin for _, name, begin, _ in ranks[0] if name == "forward"]
            print(f"overlap_forward={overlap}: step of {(steps[-1] - steps[0]) / (KEPT - 1):.0f} ms", flush=True)
    if hvd.rank() == 0 and options.json:
        text = json.dumps(document).replace('"runs"', '\n"runs"').replace("[[[", "\n[[[").replace("]], [[", "]],\n[[")
        options.json.write_text(text + "\n", encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
