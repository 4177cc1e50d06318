"""Trains the same network on any number of ranks: one_process.py with five changes.

ringrun -np 2 python examples/tutorial/many_ranks.py
"""

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ringcomm.torch as hvd

hvd.init()  # 1. join the job

torch.manual_seed(0)  # the same data on every rank; yours is read from files
x = torch.randn(5120, 16)
y = (x[:, 0] * x[:, 1] > 0).long()
train, test = TensorDataset(x[:4096], y[:4096]), TensorDataset(x[4096:], y[4096:])
shard = DistributedSampler(train, hvd.size(), hvd.rank())  # 2. divide the data

model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())  # 3. average gradients
hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # 4. begin with equal weights

for epoch in range(5):
    shard.set_epoch(epoch)  # another order of the data in each epoch
    for inputs, targets in DataLoader(train, batch_size=32 // hvd.size(), sampler=shard):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    inputs, targets = test.tensors
    accuracy = (model(inputs).argmax(1) == targets).float().mean().item()
    if hvd.rank() == 0:  # 5. one rank reports
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
