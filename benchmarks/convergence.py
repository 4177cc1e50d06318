"""Measures training with encoded gradients: a letter model's loss over steps and over bytes.

    mpiexec -n 4 python benchmarks/convergence.py --json benchmarks/results/convergence.json

The model and text of examples/train_char_lm.py (2 layers of width 64), batch 32 x 32 letters, AdamW
3e-3. Every format starts from the same weights and uses the same batches; "-" means without error
feedback. Ranks of one host exchange gradients by messages (everywhere=True), so that bytes are
those between four hosts of one rank each, counted on the busiest rank. Formats with less than 4
bits use int8 in the first 15 % of the steps. "loss" is measured on text that is not trained on, and
averaged over the seeds; the least and the largest are in brackets.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from measure import machine, write

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.cli.measured import now

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train_char_lm.py"
WARMED = 0.15  # share of the steps
HELD_BACK = 0.05  # share of the text


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_char_lm", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contestants(steps: int) -> dict[str, Any]:
    """Returns the compression of each contestant, by name."""
    C, warm = hvd.Compression, round(WARMED * steps)
    lossy = {
        "int8": C.int8,
        "int4": C.int4,
        "ternary": C.ternary(warmup_steps=warm),
        "onebit": C.onebit(warmup_steps=warm),
        "topk 10 %": C.topk(0.1, warmup_steps=warm),
        "topk 1 %": C.topk(0.01, warmup_steps=warm),
        "powersgd 1": C.powersgd(1, warmup_steps=warm),
        "powersgd 4": C.powersgd(4, warmup_steps=warm),
    }
    found: dict[str, Any] = {"float32": C.none, "bf16": C.bf16}
    found |= {name: wire(everywhere=True) for name, wire in lossy.items()}
    return found | {
        f"{name} -": lossy[name](everywhere=True, error_feedback=False)
        for name in ("int8", "int4", "onebit", "topk 1 %", "powersgd 4")
    }


def loss_of(model: Any, inputs: torch.Tensor, targets: torch.Tensor, letters: int) -> torch.Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum") / letters


def run(char: ModuleType, wire: Any, data: torch.Tensor, letters: int, options: Any) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    model = char.CharModel(letters, options.context, 64, 2)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=options.lr)
    how = {"algorithm": "round_robin"} if not isinstance(wire, WireFormat) else {}
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=wire, op=hvd.Sum, **how)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    cut = round(len(data) * (1 - HELD_BACK))
    every = options.batch * options.context
    losses, sent = [], []
    ringcomm.stats(reset=True)
    for step in range(options.steps):
        inputs, targets = char.global_batch(data[:cut], step, options)
        mine = [torch.tensor_split(part, hvd.size())[hvd.rank()] for part in (inputs, targets)]
        optimizer.zero_grad()
        loss = loss_of(model, *mine, every)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        sent.append(ringcomm.stats().of("allreduce").bytes_sent)
    bytes_sent = hvd.allreduce(torch.tensor(sent, dtype=torch.int64), op=hvd.Max, name="sent")
    with torch.no_grad():
        held = [char.global_batch(data[cut:], 10_000 + i, options) for i in range(10)]
        test = statistics.fmean(loss_of(model, *pair, every).item() for pair in held)
    together = hvd.allreduce(torch.stack(losses), op=hvd.Sum, name="losses")
    return {"losses": together.tolist(), "bytes": bytes_sent.tolist(), "test": test}


def show(name: str, runs: list[dict[str, Any]], dense: list[dict[str, Any]]) -> None:
    test = [one["test"] for one in runs]
    last = len(runs[0]["bytes"])
    after = last - last // 2  # after the first, warm-up steps
    fewer = (dense[0]["bytes"][-1] - dense[0]["bytes"][after]) / max(1, runs[0]["bytes"][-1] - runs[0]["bytes"][after])
    print(
        f"{name:14} loss {statistics.fmean(test):.3f} [{min(test):.3f}, {max(test):.3f}], "
        f"{runs[0]['bytes'][-1] / 1e6:8.2f} MB sent by a rank, 1/{fewer:.1f} of float32's in the second half",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", metavar="NAMES", help="between commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    char, begun = example(), time.perf_counter()
    results: dict[str, list[dict[str, Any]]] = {}
    text = hvd.broadcast_object(char.read_text() if hvd.rank() == 0 else None, root_rank=0)
    letters = sorted(set(text))
    index = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([index[letter] for letter in text])
    for name, wire in contestants(options.steps).items():
        if options.only and name not in ("float32", *options.only.split(",")):
            continue
        results[name] = []
        for seed in range(1, options.seeds + 1):
            options.seed = seed
            results[name].append(run(char, wire, data, len(letters), options))
        if hvd.rank() == 0:
            show(name, results[name], results["float32"])
    if hvd.rank() == 0:
        print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
        if options.json:
            how = {key: getattr(options, key) for key in ("steps", "batch", "context", "lr", "seeds")}
            write(options.json, {**how, "ranks": hvd.size(), "date": now(), "machine": machine(), "runs": results})
    hvd.shutdown()


if __name__ == "__main__":
    main()
