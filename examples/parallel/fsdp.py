"""Sharded data parallelism (ZeRO's third stage; FSDP2).

Each rank keeps a part of every layer's weights, gradients and optimizer state. The ranks gather a
layer before it computes, and reduce-scatter its gradients after it.

    ringrun -np 2 python examples/parallel/fsdp.py

CPUOffloadPolicy keeps the parts in host memory while a GPU computes; on CPU ranks they are there in
any case.
"""

import torch
from common import alone, compare, model, share, start, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, size = start()
mesh = init_device_mesh("cpu", (size,))
net = model()
for layer in net:
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
held = sum(one.to_local().numel() for one in net.parameters())
train(net, torch.optim.Adam(net.parameters(), lr=0.01), lambda whole: share(whole, rank, size))
if rank == 0:
    print(f"this rank holds {held} of {sum(one.numel() for one in net.parameters())} weights")
expected = alone(torch.optim.Adam, 0.01).state_dict()
compare({name: one.full_tensor() for name, one in net.state_dict().items()}, expected, 1e-4)
