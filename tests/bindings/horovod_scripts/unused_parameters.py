"""A model that uses a different branch per batch; one is never used, and one is frozen."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--branches", type=int, default=4)
args = parser.parse_args()


class Mixture(nn.Module):
    def __init__(self, branches):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.branches = nn.ModuleList(nn.Linear(8, 8) for _ in range(branches))
        self.never = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x, which):
        return self.frozen(torch.tanh(self.branches[which](torch.tanh(self.stem(x)))))


hvd.init()
torch.manual_seed(hvd.rank())
model = Mixture(args.branches)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
optimizer = torch.optim.AdamW((p for _, p in trained), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=trained)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
never = model.never.weight.detach().clone()

for step in range(args.steps):
    optimizer.zero_grad()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + hvd.rank()))
    model(x, (step + hvd.rank()) % args.branches).pow(2).mean().backward()
    optimizer.step()

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everybody = hvd.allgather(weights[None], name="weights")
if hvd.rank() == 0:
    agree = all(torch.equal(one, everybody[0]) for one in everybody)
    print("ranks agree" if agree else "ranks differ", flush=True)
    print("unused weights stay" if torch.equal(model.never.weight, never) else "unused weights move", flush=True)
    print(f"state of {len(optimizer.state_dict()['state'])} parameters", flush=True)
