"""Trains a small network in one process: the script with which the tutorial begins.

python examples/tutorial/one_process.py
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(5120, 16)
y = (x[:, 0] * x[:, 1] > 0).long()  # 1 if the first two numbers have the same sign
train, test = TensorDataset(x[:4096], y[:4096]), TensorDataset(x[4096:], y[4096:])

model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(5):
    for inputs, targets in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    inputs, targets = test.tensors
    accuracy = (model(inputs).argmax(1) == targets).float().mean().item()
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
