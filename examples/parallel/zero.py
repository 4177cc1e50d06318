"""Shards optimizer states (ZeRO's first stage).

Every rank has all weights and gradients, and Adam's two moments for a part of them. It updates that
part and broadcasts it.

    ringrun -np 2 python examples/parallel/zero.py
"""

import torch
from common import alone, compare, model, share, start, train
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
net = DistributedDataParallel(model())
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
train(net, optimizer, lambda whole: share(whole, rank, size))
states = [one for state in optimizer.optim.state.values() for one in state.values() if torch.is_tensor(one)]
print(f"rank {rank} keeps {sum(one.nbytes for one in states)} bytes of optimizer state")
compare(net.module.state_dict(), alone(torch.optim.Adam, 0.01).state_dict(), 1e-4)
