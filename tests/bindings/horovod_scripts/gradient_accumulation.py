"""Gradient accumulation: several backward passes, then gradients are reduced and clipped."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
parser.add_argument("--batches-per-allreduce", type=int, default=3)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--clip", type=float, default=0.5)
args = parser.parse_args()

hvd.init()
torch.manual_seed(7 + hvd.rank())
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1)).double()
start = torch.Generator().manual_seed(1)
if hvd.rank() == 0:
    for p in model.parameters():
        p.data.uniform_(-0.3, 0.3, generator=start)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=args.batches_per_allreduce
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for step in range(args.steps):
    same_everywhere = torch.Generator().manual_seed(step)
    data = torch.randn(args.batch_size, 10, generator=same_everywhere, dtype=torch.float64)
    mine = data.chunk(hvd.size())[hvd.rank()]
    optimizer.zero_grad()
    for part in mine.chunk(args.batches_per_allreduce):
        loss = F.mse_loss(model(part), part.sum(1, keepdim=True).sin())
        (loss / args.batches_per_allreduce).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    with optimizer.skip_synchronize():
        optimizer.step()

checksum = sum(p.detach().abs().sum() for p in model.parameters())
lowest, highest = hvd.allreduce(checksum, op=hvd.Min), hvd.allreduce(checksum, op=hvd.Max)
if hvd.rank() == 0:
    print(f"norm {norm.item():.9f} checksum {checksum.item():.9f} spread {(highest - lowest).item():.1e}", flush=True)
