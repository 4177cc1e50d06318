"""Ranks with unequal data: ranks without data join; the last rank's model is used."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, default=4, help="of rank 0; every further rank has two more")
args = parser.parse_args()

hvd.init()
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

losses, last = [], -1
for epoch in range(args.epochs):
    total = torch.zeros(())
    mine = args.batches + 2 * hvd.rank()
    for batch in range(mine):
        generator = torch.Generator().manual_seed(1000 * epoch + 10 * batch + hvd.rank())
        data = torch.randn(8, 5, generator=generator)
        optimizer.zero_grad()
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    losses.append(hvd.allreduce(total / mine, name="epoch loss").item())

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everybody = hvd.allgather(weights[None])
if hvd.rank() == 0:
    print("ranks agree" if all(torch.equal(one, everybody[0]) for one in everybody) else "ranks differ")
    print(f"last {last} first {losses[0]:.4f} final {losses[-1]:.4f}", flush=True)
