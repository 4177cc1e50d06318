"""Trains by post-local SGD (Lin et al., arXiv:1808.07217), which needs fewer messages.

The ranks average gradients in the first steps. Then every rank steps alone, and the ranks average
the weights at intervals.

    ringrun -np 2 python examples/parallel/local_sgd.py

The result differs from that of one process. The program checks that all ranks end with equal
weights.
"""

import torch
import torch.distributed as dist
from common import STEPS, compare, model, share, start, train
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
net = DistributedDataParallel(model())
alone = dist.new_subgroups(1)[0]
net.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=1), post_localSGD_hook)
averager = PeriodicModelAverager(period=STEPS, warmup_steps=0)
optimizer = PostLocalSGDOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), averager)
train(net, optimizer, lambda whole: share(whole, rank, size))
averager.average_parameters(net.parameters())
weights = {name: one.detach().clone() for name, one in net.module.state_dict().items()}
for one in weights.values():
    dist.all_reduce(one, dist.ReduceOp.AVG)
compare(net.module.state_dict(), weights, 1e-6, "the ranks' average")
