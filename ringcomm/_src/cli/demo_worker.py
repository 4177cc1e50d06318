"""Trains a small CNN on images of digits: the program that `ringcomm demo` starts on each rank.

Rank 0 first trains alone, in plain PyTorch, while the other ranks wait. Then each rank computes its
shard of the same global batches, and the gradients are summed: both runs see the same samples.
Rank 0 prints lines of JSON after MARK for ringcomm._src.launch.demo, which shows them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import ringcomm.torch
from ringcomm._src.base.installed import exists
from ringcomm._src.launch.demo import MARK

hvd: Any = ringcomm.torch
SEED, BATCH, RATE = 1, 64, 0.05  # BATCH: samples of all ranks together
PERIOD = 0.1  # seconds between two reports of progress

Data = list[torch.Tensor]  # images and labels for training, images and labels of the test


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)  # ranks share the cores
    hvd.init()
    first = hvd.rank() == 0
    data, source = hvd.broadcast_object(load_data() if first else None, root_rank=0)
    if first:
        report({"result": "alone", "data": source, "images": len(data[1])} | train_alone(data, epochs))
    hvd.barrier()
    result = train_on_ranks(data, epochs)
    if first:
        report({"result": "ranks"} | result)
    hvd.shutdown()
    return 0


def report(what: Mapping[str, Any]) -> None:
    print(MARK + json.dumps(what), flush=True)


# ---- data ------------------------------------------------------------------------------------------------------------


def load_data() -> tuple[Data, str]:
    """Returns 8 x 8 images in [0, 1] with their labels, every fifth for the test, and the source."""
    if exists("sklearn"):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels, source = digits.images / 16, digits.target, "scikit-learn's handwritten digits"
    else:
        images, labels = synthetic_digits(1797)
        source = "synthetic digits (scikit-learn's handwritten ones are used if it is installed)"
    images, labels = images.astype(np.float32)[:, None], labels.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[::5], order[np.arange(len(order)) % 5 != 0]
    return [torch.from_numpy(part) for part in (images[train], labels[train], images[test], labels[test])], source


SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")  # digits 0 to 9
STROKES = {  # rows and columns of a segment in a glyph of 7 x 4 pixels
    "a": (slice(0, 1), slice(0, 4)),
    "b": (slice(0, 4), slice(3, 4)),
    "c": (slice(3, 7), slice(3, 4)),
    "d": (slice(6, 7), slice(0, 4)),
    "e": (slice(3, 7), slice(0, 1)),
    "f": (slice(0, 4), slice(0, 1)),
    "g": (slice(3, 4), slice(0, 4)),
}


def synthetic_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images of seven-segment digits, shifted, of varying brightness and noisy, and labels."""
    glyphs = np.zeros((10, 7, 4))
    for digit, segments in enumerate(SEGMENTS):
        for segment in segments:
            glyphs[digit][STROKES[segment]] = 1
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, count)
    images = random.uniform(0, 0.3, (count, 8, 8))
    for image, label in zip(images, labels, strict=True):
        row, column = random.integers(0, 2), random.integers(0, 5)
        image[row : row + 7, column : column + 4] += random.uniform(0.4, 0.7) * glyphs[label]
    return images, labels


# ---- training --------------------------------------------------------------------------------------------------------


def make_model() -> nn.Module:
    """Returns a model so wide that a step takes much longer than the reduction of its gradients."""
    convolutions = [nn.Conv2d(1, 96, 3, padding=1), nn.ReLU(), nn.Conv2d(96, 192, 3, padding=1), nn.ReLU()]
    head = [nn.Linear(192 * 16, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), nn.Flatten(), *head)


def batches(count: int, epochs: int) -> Iterator[torch.Tensor]:
    """Yields the global batches, identical on all ranks and for any number of ranks."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(epochs):
        yield from torch.randperm(count, generator=generator).split(BATCH)


def train_alone(data: Data, epochs: int) -> dict[str, float]:
    """Trains in this process, without ringcomm. Returns the time in seconds and the accuracy."""
    torch.manual_seed(SEED)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    seconds = train("alone", model, optimizer, data, epochs, lambda batch: batch)
    return {"seconds": seconds, "accuracy": count_right(model, data[2], data[3]) / len(data[3])}


def train_on_ranks(data: Data, epochs: int) -> dict[str, float]:
    """Trains on all ranks. Returns the slowest rank's time in seconds and the accuracy. Collective."""

    def shard(batch: torch.Tensor) -> torch.Tensor:
        return torch.tensor_split(batch, hvd.size())[hvd.rank()]

    torch.manual_seed(SEED + hvd.rank())  # different weights, until rank 0's are broadcast
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9),
        named_parameters=model.named_parameters(),
        op=hvd.Sum,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.barrier()
    seconds = torch.tensor(train("ranks", model, optimizer, data, epochs, shard))
    right = torch.tensor(count_right(model, shard(data[2]), shard(data[3])))
    return {
        "seconds": float(hvd.allreduce(seconds, op=hvd.Max, name="seconds")),
        "accuracy": int(hvd.allreduce(right, op=hvd.Sum, name="right")) / len(data[3]),
    }


def train(
    run: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Data,
    epochs: int,
    shard: Callable[[torch.Tensor], torch.Tensor],
) -> float:
    """Returns the time of all steps in seconds. Rank 0 reports its progress under the name `run`."""
    plan, last = list(batches(len(data[1]), epochs)), 0.0
    begin = time.perf_counter()
    for step, batch in enumerate(plan, 1):
        mine = shard(batch)
        optimizer.zero_grad()
        # Divided by the global batch: the sum over ranks is the gradient of the global mean.
        loss = F.cross_entropy(model(data[0][mine]), data[1][mine], reduction="sum") / len(batch)
        loss.backward()
        optimizer.step()
        if hvd.rank() == 0 and (step == len(plan) or time.perf_counter() - last > PERIOD):
            last = time.perf_counter()
            report({"run": run, "step": step, "steps": len(plan), "loss": loss.item() * len(batch) / max(1, len(mine))})
    return time.perf_counter() - begin


def count_right(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> int:
    with torch.no_grad():
        return int((model(images).argmax(1) == labels).sum())


if __name__ == "__main__":
    sys.exit(main())
