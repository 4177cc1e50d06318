"""Runs Accelerate on ringcomm: the process group exists before the Accelerator, which then uses it.

    ringrun -np 2 python examples/parallel/with_accelerate.py       # pip install accelerate

On several hosts Accelerate needs MASTER_ADDR, rank 0's host.
"""

import torch
from accelerate import Accelerator
from common import LR, STEPS, alone, compare, loader, model, start, the_first
from torch import nn

rank, size = start()
accelerator = Accelerator(cpu=True)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=LR)
net, optimizer, data = accelerator.prepare(net, optimizer, loader(size))
for _ in range(STEPS):
    for x, y in data:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(net(x), y))
        optimizer.step()
compare(accelerator.unwrap_model(net).state_dict(), alone(draw=the_first).state_dict())
