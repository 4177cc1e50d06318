"""Adds to many_ranks.py: larger batches, seeds, a divided test, checkpoints, and resuming.

ringrun -np 2 python examples/tutorial/resume.py --epochs 3
ringrun -np 2 python examples/tutorial/resume.py --epochs 5    # continues with epoch 3
"""

import argparse
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ringcomm.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--checkpoint", type=Path, default="checkpoint.pt")
options = parser.parse_args()

hvd.init()
x = torch.randn(5120, 16, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] * x[:, 1] > 0).long()
train, test = TensorDataset(x[:4096], y[:4096]), TensorDataset(x[4096:], y[4096:])
shard = DistributedSampler(train, hvd.size(), hvd.rank())

# Seeds: each rank draws other numbers, for dropout and augmentation.
torch.manual_seed(1000 + hvd.rank())

# Learning rate: a step sees 32 samples of every rank, so the rate grows with the batch. A warm-up
# raises it over the first 64 steps.
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / hvd.size(), total_iters=64)

# Resuming: rank 0 reads the checkpoint, and all ranks get what it has read.
first = 0
if hvd.rank() == 0 and options.checkpoint.exists():
    saved = torch.load(options.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    warm_up.load_state_dict(saved["warm_up"])
    first = saved["epoch"] + 1
first = hvd.broadcast_object(first, root_rank=0)
warm_up.load_state_dict(hvd.broadcast_object(warm_up.state_dict(), root_rank=0))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for epoch in range(first, options.epochs):
    shard.set_epoch(epoch)
    model.train()
    for inputs, targets in DataLoader(train, batch_size=32, sampler=shard):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        warm_up.step()

    # Metrics: each rank counts in its part of the test data, and the ranks add the counts.
    model.eval()
    inputs, targets = (part[hvd.rank() :: hvd.size()] for part in test.tensors)
    counts = torch.tensor([(model(inputs).argmax(1) == targets).sum(), len(targets)])
    right, total = hvd.allreduce(counts, name="accuracy", op=hvd.Sum).tolist()

    # Checkpoints: weights and optimizer are the same on all ranks, so rank 0 alone writes them.
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "warm_up": warm_up.state_dict()}
    if hvd.rank() == 0:
        print(f"epoch {epoch}: accuracy {right / total:.3f} of {total} samples")
        torch.save(state | {"epoch": epoch}, options.checkpoint)
