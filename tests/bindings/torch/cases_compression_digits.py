"""Trains on digits with every format; the weights are identical on all ranks in every step."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from training import same_bits_everywhere

import ringcomm.torch as hvd

FORMATS = [
    hvd.Compression.int8,
    hvd.Compression.int4,
    hvd.Compression.qsgd(bits=4),
    hvd.Compression.onebit,
    hvd.Compression.ternary,
    hvd.Compression.terngrad,
    hvd.Compression.topk(0.05),
    hvd.Compression.threshold(0.02),
    hvd.Compression.powersgd(2),
]
BATCH, EPOCHS = 50, 4


def accuracy(wire, pictures, numbers):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.4),
        net.named_parameters(),
        compression=wire(everywhere=True, min_elements=1, warmup_steps=10),
    )
    train = len(pictures) - 300
    for epoch in range(EPOCHS):
        order = torch.randperm(train, generator=torch.Generator().manual_seed(epoch))
        for first in range(0, train - BATCH, BATCH):
            mine = order[first : first + BATCH][hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pictures[mine]), numbers[mine]).backward()
            optimizer.step()
        same_bits_everywhere(net)
    with torch.no_grad():
        return (net(pictures[train:]).argmax(1) == numbers[train:]).float().mean().item()


def case_every_format_learns_digits():
    if hvd.size() != 2:
        return
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1))
    pictures = torch.tensor(digits.data / 16, dtype=torch.float32)[order]
    numbers = torch.tensor(digits.target)[order]
    for wire in FORMATS:
        learnt = accuracy(wire, pictures, numbers)
        assert learnt >= 0.9, (str(wire), learnt)
