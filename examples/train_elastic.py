"""Trains a small network on handwritten digits, and continues when ranks are lost or join.

    ringrun -np 3 --min-np 2 python examples/train_elastic.py --lose 1:40
    ringrun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python examples/train_elastic.py

The first command kills rank 1 at step 40.
"""

import argparse
import os
import signal

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringcomm.torch as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.02, help="for one rank; grows with the number of ranks")
    parser.add_argument("--lose", metavar="RANK:STEP", help="this rank of the first ones is killed then")
    return parser.parse_args()


def main():
    options = parse_arguments()
    hvd.init()
    torch.manual_seed(1)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).flatten(1)
    labels = torch.tensor(digits.target)
    test = torch.arange(len(labels)) % 5 == 0
    data = TensorDataset(images[~test], labels[~test])

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data, seed=1)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0)

    def adapt():
        """Adapts the restored learning rate to the present number of ranks."""
        for group in optimizer.param_groups:
            group["lr"] = options.lr * hvd.size()

    state.register_reset_callbacks([adapt])
    lost = [int(number) for number in options.lose.split(":")] if options.lose else []

    @hvd.elastic.run
    def train(state):
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks, from step {state.step} in epoch {state.epoch}", flush=True)
        while state.epoch < options.epochs:
            for number, (x, y) in enumerate(DataLoader(data, options.batch, sampler=sampler)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                sampler.record_batch(number, options.batch)
                state.step += 1
                if lost == [hvd.rank(), state.step] and os.environ.get("RINGCOMM_ELASTIC_GENERATION") == "1":
                    os.kill(os.getpid(), signal.SIGKILL)
                state.commit()  # later failures lose nothing up to here
            state.epoch += 1
            sampler.set_epoch(state.epoch)

    train(state)
    if hvd.rank() == 0:
        with torch.no_grad():
            right = (model(images[test]).argmax(1) == labels[test]).float().mean()
        print(f"{hvd.size()} ranks, {state.step} steps: accuracy {right:.3f}", flush=True)


if __name__ == "__main__":
    main()
