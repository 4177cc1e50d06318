"""A training with reproducible bits: batch normalisation, Adam, a schedule, an elastic sampler.

``elastic_digits.py FOLDER STEPS [RANK:STEP]``: in an elastic job; kills that rank of the first
generation at that step. ``elastic_digits.py FOLDER STEPS --from FILE --to FILE``: on fixed ranks,
from one file to another: the reference for each membership of a job. DIGITS_DEVICE=standin: on the
device of tests/gpu. DIGITS_OVERLAP=1: with overlap_forward.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import ringcomm.torch as hvd

GENERATION = int(os.environ.get("RINGCOMM_ELASTIC_GENERATION", "0"))
SAMPLES, BATCH = 61, 4
DEVICE = os.environ.get("DIGITS_DEVICE", "cpu")
if DEVICE != "cpu":
    importlib.import_module("on_device")
torch.set_num_threads(1)


def digest(state) -> str:
    made = hashlib.sha256()
    for name, tensor in sorted(state.model.state_dict().items()):
        made.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    for entry in state.optimizer.state_dict()["state"].values():
        made.update(b"".join(value.cpu().numpy().tobytes() for value in entry.values()))
    return made.hexdigest()


def make_state():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    overlap = bool(os.environ.get("DIGITS_OVERLAP"))
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap_forward=overlap)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.9)
    data = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
    sampler = hvd.elastic.ElasticSampler(data, seed=2)
    state = hvd.elastic.TorchState(model, optimizer, schedule=schedule, sampler=sampler, step=0, epoch=0, history=[])
    return state, data


def train(state, data, steps: int, log, after_step) -> None:
    """Trains; writes a line to `log` for each step: number, epoch, and this rank's samples."""
    while state.step < steps:
        loader = torch.utils.data.DataLoader(range(SAMPLES), batch_size=BATCH, sampler=state.sampler)
        for number, indices in enumerate(loader):
            x = data[[*indices.tolist(), 0]].to(DEVICE)  # never a batch of 1, which batch normalisation refuses
            state.optimizer.zero_grad()
            (state.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            state.optimizer.step()
            state.schedule.step()
            print(json.dumps([state.step, state.epoch, indices.tolist()]), file=log, flush=True)
            state.sampler.record_batch(number, BATCH)
            state.step += 1
            after_step(state)
            if state.step == steps:
                return
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


def main() -> None:
    folder, steps, *rest = sys.argv[1:]
    hvd.init()
    state, data = make_state()
    if rest[:1] == ["--from"]:
        fixed(state, data, int(steps), rest[1], rest[3])
        return
    fault = [int(number) for number in rest[0].split(":")] if rest else []

    @hvd.elastic.run
    def run(state) -> None:
        state.history.append([GENERATION, hvd.size(), state.step])

        def after_step(state) -> None:
            if GENERATION == 1 and fault == [hvd.rank(), state.step]:
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

        with open(Path(folder, f"samples.{GENERATION}.{hvd.rank()}"), "w") as log:
            train(state, data, int(steps), log, after_step)

    run(state)
    if hvd.rank() == 0:
        Path(folder, "result").write_text(json.dumps({"digest": digest(state), "history": state.history}))


def fixed(state, data, steps: int, source: str, target: str) -> None:
    if Path(source).exists():
        state.put_back(torch.load(source, weights_only=False))
    state.sync()
    with open(os.devnull, "w") as log:
        train(state, data, steps, log, lambda state: None)
    if hvd.rank() == 0:
        torch.save(state.contents(), target)
        Path(f"{target}.digest").write_text(digest(state))


if __name__ == "__main__":
    main()
