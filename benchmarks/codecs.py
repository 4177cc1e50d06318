"""Measures the cost of encoding: nanoseconds per float32, compared with a copy, on one core.

    python benchmarks/codecs.py --json codecs.json

The array is larger than any cache. "encode" uses error feedback: it reads the array and the
residual, and writes the decoded values and the next residual. "add" decodes into a sum; "decode"
decodes. "torch" is the same encoder in PyTorch's operations, if this script has one, also on one
core. "share of a copy" is a copy's time over the encoder's: 1 is the speed at which memory is
copied. Contestants take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, pin, ratio, write

from ringcomm import Compression
from ringcomm._src.cli.measured import now
from ringcomm._src.core import _core

FLOAT32 = _core.DTYPES.index("float32")
FORMATS = {
    "bfloat16": _core.wire_code("bfloat16"),
    "int8": Compression.int8.code,
    "int8 stochastic": Compression.int8(stochastic=True).code,
    "int4": Compression.int4.code,
    "ternary": Compression.ternary.code,
    "onebit": Compression.onebit.code,
    "topk 1 %": Compression.topk(0.01).code,
    "threshold": Compression.threshold(3.0).code,
}


def torch_int8(x: torch.Tensor, residual: torch.Tensor) -> None:
    v = (x + residual).view(-1, 256)
    step = v.abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
    codes = (v / step).round().to(torch.int8)
    decoded = codes * step
    residual.copy_((v - decoded).flatten())
    x.copy_(decoded.flatten())


def torch_onebit(x: torch.Tensor, residual: torch.Tensor) -> None:
    v = (x + residual).view(-1, 1024)
    decoded = v.abs().mean(1, keepdim=True) * v.sign()
    residual.copy_((v - decoded).flatten())
    x.copy_(decoded.flatten())


def torch_topk(x: torch.Tensor, residual: torch.Tensor) -> None:
    v = x + residual
    index = v.abs().topk(len(v) // 100).indices
    decoded = torch.zeros_like(v)
    decoded[index] = v[index]
    residual.copy_(v - decoded)
    x.copy_(decoded)


TORCH = {"int8": torch_int8, "onebit": torch_onebit, "topk 1 %": torch_topk}


class Encoder:
    def __init__(self, code: int, values: np.ndarray) -> None:
        self.values, self.block, self.sum = values, values.copy(), np.zeros_like(values)
        self.feedback = _core.Feedback([len(values)])
        self.codec = _core.Codec(code, FLOAT32, self.feedback)
        self.wire = np.empty(self.codec.capacity(len(values)), np.uint8)
        self.nbytes = 0

    def prepare(self) -> None:
        np.copyto(self.block, self.values)
        self.feedback.begin()

    def encode(self) -> None:
        self.nbytes = self.codec.encode(self.block.ctypes.data, len(self.block), self.wire.ctypes.data)

    def decode(self, add: bool) -> None:
        self.codec.decode(self.wire.ctypes.data, self.nbytes, self.sum.ctypes.data, len(self.sum), add)


def timed(prepare: Callable[[], Any] | None, work: Callable[[], Any]) -> float:
    if prepare:
        prepare()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measured(count: int, turns: int) -> tuple[dict[str, dict[str, list[float]]], dict[str, float]]:
    """Returns seconds by format and operation, and bytes per element."""
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    other = np.empty_like(values)
    encoders = {name: Encoder(code, values) for name, code in FORMATS.items()}
    works: dict[tuple[str, str], tuple[Any, Callable[[], Any]]] = {
        ("copy", "copy"): (None, lambda: np.copyto(other, values))
    }
    for name, one in encoders.items():
        works[name, "encode"] = one.prepare, one.encode
        works[name, "add"] = None, lambda one=one: one.decode(True)
        works[name, "decode"] = None, lambda one=one: one.decode(False)
    tensor, residual = torch.from_numpy(values.copy()), torch.zeros(count)
    for name, work in TORCH.items():
        works[name, "torch"] = (
            lambda: (tensor.copy_(torch.from_numpy(values)), residual.zero_()),
            lambda work=work: work(tensor, residual),
        )
    seconds: dict[str, dict[str, list[float]]] = {}
    for turn in range(turns + 1):
        for (name, what), (prepare, work) in works.items():
            took = timed(prepare, work)
            if turn > 0:
                seconds.setdefault(name, {}).setdefault(what, []).append(took)
    return seconds, {name: one.nbytes / count for name, one in encoders.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8 << 20, help="elements")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pin(0)
    torch.set_num_threads(1)
    seconds, nbytes = measured(options.count, options.turns)
    copy = seconds["copy"]["copy"]
    print(f"a copy: {statistics.median(copy) / options.count * 1e9:.2f} ns/element")
    print(f"{'':16} {'bytes':>6} {'encode':>7} {'add':>6} {'decode':>6} {'torch':>6}  share of a copy (encode)")
    for name in FORMATS:
        ns = {what: statistics.median(times) / options.count * 1e9 for what, times in seconds[name].items()}
        middle, low, high = ratio(copy, seconds[name]["encode"])
        in_torch = f"{ns['torch']:6.1f}" if "torch" in ns else " " * 6
        print(
            f"{name:16} {nbytes[name]:6.3f} {ns['encode']:7.2f} {ns['add']:6.2f} {ns['decode']:6.2f} {in_torch}  "
            f"{middle:.2f} [{low:.2f}, {high:.2f}]"
        )
    if options.json:
        found = {"count": options.count, "turns": options.turns, "date": now(), "machine": machine()}
        write(options.json, {**found, "bytes": nbytes, "seconds": seconds})


if __name__ == "__main__":
    main()
