"""Trains a small network on digits by relaxed methods, in which ranks do not wait for a slow one.

    ringrun -np 4 python examples/train_relaxed.py --method timed --straggler 4

Every step takes --unit milliseconds, and --straggler times as long on the last rank. The program
prints when the method's model reached the accuracy --target on the test images, and its last
accuracy. `--method all` compares all methods.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import ringcomm.torch as hvd

# METHODS maps a name to the wrapper, SGD's learning rate over 1 - momentum, and its momentum.
METHODS = {
    "sync": (lambda o, model: hvd.DistributedOptimizer(o), 1.0, 0.9),
    "late": (lambda o, model: hvd.DistributedOptimizer(o, delay=1), 0.4, 0.9),
    "local": (lambda o, model: hvd.LocalSGD(o, every=8, model=model), 1.0, 0.9),
    "post_local": (lambda o, model: hvd.LocalSGD(o, every=8, start=20, model=model), 1.0, 0.9),
    "overlapped": (lambda o, model: hvd.LocalSGD(o, every=8, overlap=True, model=model), 0.5, 0.9),
    "timed": (lambda o, model: hvd.LocalSGD(o, every="40ms", model=model), 1.0, 0.9),
    "slowmo": (
        lambda o, model: hvd.DiLoCo(o, every=8, outer_lr=1.0, outer_momentum=0.5, nesterov=False, model=model),
        1.0,
        0.5,
    ),
    "diloco": (lambda o, model: hvd.DiLoCo(o, every=16, model=model), 1.0, 0.5),
    "streaming": (lambda o, model: hvd.DiLoCo(o, every=8, fragments=4, delay=2, model=model), 1.0, 0.5),
    "easgd": (lambda o, model: hvd.EASGD(o, every=4, model=model), 1.0, 0.9),
    "easgd_async": (lambda o, model: hvd.EASGD(o, every=4, mode="async", model=model), 1.0, 0.9),
    "easgd_turns": (lambda o, model: hvd.EASGD(o, every=4, mode="round_robin", model=model), 1.0, 0.9),
    "async": (lambda o, model: hvd.ParameterServer(o), 0.3, 0.0),
    "inverse": (lambda o, model: hvd.ParameterServer(o, scale="inverse"), 0.5, 0.0),
    "ssp": (lambda o, model: hvd.ParameterServer(o, consistency=hvd.SSP(3)), 0.3, 0.0),
    "softsync": (lambda o, model: hvd.ParameterServer(o, consistency=hvd.SoftSync(2)), 0.5, 0.0),
    "backup": (lambda o, model: hvd.ParameterServer(o, consistency=hvd.Backup(hvd.size() - 1 or 1)), 0.5, 0.0),
    "hogwild": (lambda o, model: hvd.Hogwild(o, model=model), 0.3, 0.0),
    "gossip": (lambda o, model: hvd.Gossip(o, topology="one_peer_exponential", model=model), 1.0, 0.9),
    "choco": (lambda o, model: hvd.Gossip(o, topology="ring", compression=hvd.Compression.topk(0.1)), 1.0, 0.9),
    "ad_psgd": (lambda o, model: hvd.Gossip(o, mode="async", model=model), 1.0, 0.9),
    "ternary": (lambda o, model: hvd.GradientSharing(o, threshold=0.01, adaptive=False), 1.0, 0.9),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=(*METHODS, "all"), default="timed")
    parser.add_argument("--straggler", type=float, default=1.0, help="how many times slower the last rank is")
    parser.add_argument("--seconds", type=float, default=3.0, help="after which ranks end")
    parser.add_argument("--unit", type=float, default=5.0, help="milliseconds of a step, at least")
    parser.add_argument("--batch", type=int, default=16, help="of each rank")
    parser.add_argument("--target", type=float, default=0.95, help="accuracy on the test images")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FILE.json", help="write curves of accuracy over time and samples")
    return parser.parse_args()


def load_data():
    """Returns images as rows, scaled to [0, 1]; every fifth is for the test."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[::5], order[torch.arange(len(order)) % 5 != 0]
    return images[train], labels[train], images[test], labels[test]


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


class Watch:
    """A monitor of the method's model on rank 0: evaluates it after changes, not too often."""

    def __init__(self, optimizer, model, data):
        self.optimizer, self.model, self.test = optimizer, model, data[2:]
        self.curve, self.looked, self.next = [], 0, 0.0

    def look(self, seconds, steps):
        if hvd.rank() != 0 or seconds < self.next:
            return
        self.next = seconds + 0.02
        if hasattr(self.optimizer, "exchange_now"):
            exchanges = self.optimizer.stats()["exchanges"]
            if exchanges == self.looked:
                return
            self.looked = exchanges
            updates = self.optimizer.updates
            if self.optimizer.has_own_model:  # an anchor, a centre or a store: any rank may evaluate it
                with self.optimizer.global_weights():
                    now = accuracy(self.model, *self.test)
            else:  # after a round the weights are the mean
                now = accuracy(self.model, *self.test)
        else:
            updates, now = steps * hvd.size(), accuracy(self.model, *self.test)
        self.curve.append((round(seconds, 4), updates, round(now, 4)))


def train(method, data, options):
    """Returns the curve (seconds, updates and accuracy), the last accuracy, and this rank's steps."""
    make, rate, momentum = METHODS[method]
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = make(torch.optim.SGD(model.parameters(), lr=rate * (1 - momentum), momentum=momentum), model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(1000 * options.seed + hvd.rank())
    slow = options.straggler if hvd.rank() == hvd.size() - 1 else 1.0
    watch, steps = Watch(optimizer, model, data), 0
    hvd.barrier()
    start = time.monotonic()
    while time.monotonic() - start < options.seconds:
        begun = time.monotonic()
        chosen = torch.randint(len(data[0]), (options.batch,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(data[0][chosen]), data[1][chosen]).backward()
        time.sleep(max(0.0, begun + slow * options.unit / 1000 - time.monotonic()))
        optimizer.step()
        steps += 1
        watch.look(time.monotonic() - start, steps)
    if hasattr(optimizer, "exchange_now"):
        optimizer.finish()
    else:
        hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.join())
    return watch.curve, accuracy(model, *data[2:]), steps


def main():
    options = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    data, results = load_data(), {}
    for method in METHODS if options.method == "all" else [options.method]:
        curve, last, steps = train(method, data, options)
        everybody = hvd.allgather(torch.tensor([steps]), name="steps").tolist()
        reached = next((seconds for seconds, _, now in curve if now >= options.target), None)
        results[method] = {"reached": reached, "last": last, "steps": everybody, "curve": curve}
        if hvd.rank() == 0:
            when = f"{reached:5.2f} s" if reached is not None else "not reached"
            print(f"{method:12} {options.target} after {when:11}  at the end {last:.3f}  steps {everybody}", flush=True)
    if options.save and hvd.rank() == 0:
        Path(options.save).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
