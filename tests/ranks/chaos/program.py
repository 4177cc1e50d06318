"""The program that the harness trains. A lost or repeated step changes all later steps.

Gradients are small integers, so sums are exact in any order. They are hashes of the weights,
the indices, the step, the rank and the size. tests/ranks/chaos/replay.py computes the same result
from the history of memberships only.
"""

import atexit
import hashlib
import os
import random
import resource
import sys
import time
from importlib import import_module
from typing import Any

import phases

atexit.register(phases.at, "exit")  # handlers run in reverse order, so this is the last one
phases.at("import")

import numpy as np  # noqa: E402

import ringcomm.elastic  # noqa: E402
from ringcomm import RingcommError  # noqa: E402

EPOCHS, SAMPLES, BATCH, WIDTH, NAP = (float(word) for word in os.environ["CHAOS_SHAPE"].split(","))
USES_TORCH = os.environ.get("CHAOS_TORCH") == "1"
BALLAST = 8 << 20  # bytes of a commit that is refused

torch: Any = None
hvd: Any = ringcomm
if USES_TORCH:  # import_module hides torch from the scan of the program's imports; most jobs start faster without it
    torch, hvd = import_module("torch"), import_module("ringcomm.torch")

phases.at("init")
hvd.init()
phases.here.update(rank=hvd.rank(), size=hvd.size())
phases.hook_commits()
phases.at("inited")


def gradient_of(weights, indices, step):
    """Returns the sum of the gradients of these indices."""
    lanes = np.arange(int(WIDTH), dtype=np.int64) * 31
    total = np.zeros(int(WIDTH))
    for index in indices:
        mixed = np.floor(weights * 8).astype(np.int64) + lanes + index * 1009 + step * 9176
        mixed += hvd.rank() * 77 + hvd.size() * 131
        total += ((mixed * 2654435761 & 0x7FFFFFFF) >> 7) % 257 - 128
    return total


class Dealer:
    """A sampler that distributes indices as ElasticSampler does, without torch."""

    def __init__(self, samples):
        self.samples, self.processed_num = samples, 0
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.load_state_dict({"epoch": epoch, "processed_num": 0})

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state):
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        order = list(range(self.samples))
        random.Random(self.epoch).shuffle(order)
        left = order[self.processed_num :]
        self.num_samples = -(-len(left) // hvd.size())
        places = range(hvd.rank(), self.num_samples * hvd.size(), hvd.size())
        self.indices = [left[place % len(left)] for place in places]

    def record_batch(self, _number, size):
        self.processed_num += size * hvd.size()

    def __iter__(self):
        return iter(self.indices)


class Plain:
    """Training state with weights and momentum as arrays."""

    def __init__(self):
        self.sampler = Dealer(int(SAMPLES))
        self.state = ringcomm.elastic.ObjectState(
            weights=np.zeros(int(WIDTH)),
            momentum=np.zeros(int(WIDTH)),
            dealt=self.sampler.state_dict(),
            step=0,
            more=b"",
        )

    def begin(self):
        self.sampler.load_state_dict(self.state.dealt)

    def weights(self):
        return self.state.weights

    def update(self, gradient):
        self.state.momentum = self.state.momentum * 0.5 + hvd.allreduce(gradient, op=hvd.Sum)
        self.state.weights = self.state.weights - self.state.momentum / 1024

    def commit(self):
        self.state.dealt = self.sampler.state_dict()
        self.state.commit()


class WithTorch:
    """Training state with a torch model, and the momentum of SGD."""

    def __init__(self):
        self.model = torch.nn.Module()
        self.model.weights = torch.nn.Parameter(torch.zeros(int(WIDTH), dtype=torch.float64))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1 / 1024, momentum=0.5)
        self.sampler = hvd.elastic.ElasticSampler(range(int(SAMPLES)))
        self.state = hvd.elastic.TorchState(self.model, self.optimizer, sampler=self.sampler, step=0, more=b"")

    def begin(self):
        """Does nothing, because the sampler is a part of the state."""

    def weights(self):
        return self.model.weights.detach().numpy()

    def update(self, gradient):
        self.model.weights.grad = hvd.allreduce(torch.from_numpy(gradient), op=hvd.Sum)
        self.optimizer.step()

    def commit(self):
        self.state.commit()


training = WithTorch() if USES_TORCH else Plain()
run = hvd.elastic.run if USES_TORCH else ringcomm.elastic.run


def one_step(batch):
    state, sampler = training.state, training.sampler
    phases.at("step")
    gradient = gradient_of(training.weights(), batch, state.step)
    phases.note("samples", epoch=sampler.epoch, indices=batch)
    phases.at("allreduce")
    training.update(gradient)
    state.step += 1
    phases.here["step"] = state.step
    sampler.record_batch(0, len(batch))


def commit():
    if fault := phases.armed("refuse"):
        commit_too_much(fault)
    try:
        training.commit()
    except Exception as error:
        phases.at("reset")
        phases.note("left", error=type(error).__name__)
        raise


def commit_too_much(fault):
    """Commits more data than fits on the ranks that write, and checks the refusal."""
    if hvd.rank() == 0:
        phases.note("fault", number=fault["number"], kind="refuse")
    training.state.more = bytes(BALLAST)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if fault["rank"] is None or hvd.rank() == fault["rank"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (BALLAST // 2, limits[1]))
    try:
        training.commit()
        phases.note("refused", error="nothing", text="")
    except RingcommError as error:
        phases.note("refused", error=type(error).__name__, text=str(error))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        training.state.more = b""
        phases.settle(fault["number"])


@run
def train(state):
    phases.here["step"] = state.step
    training.begin()
    phases.note("began", epoch=training.sampler.epoch, processed=training.sampler.processed_num)
    sampler, size = training.sampler, int(BATCH)
    while sampler.epoch < EPOCHS:
        indices = list(sampler)
        for at in range(0, len(indices), size):
            one_step(indices[at : at + size])
            if at + size >= len(indices):
                phases.at("epoch")
                sampler.set_epoch(sampler.epoch + 1)
            commit()
            time.sleep(NAP)


phases.at("before")
train(training.state)
phases.note("finished", digest=hashlib.sha256(training.weights().tobytes()).hexdigest())
phases.at("end")
sys.stdout.flush()
