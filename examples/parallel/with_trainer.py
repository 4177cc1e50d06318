"""Runs Hugging Face's Trainer on ringcomm: create the process group before TrainingArguments.

ringrun -np 2 python examples/parallel/with_trainer.py    # pip install transformers accelerate
"""

import tempfile

import torch
from common import BATCH, LR, STEPS, alone, compare, model, start, the_first
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    """A model as Trainer calls it: by the names of the data's columns, for a loss."""

    def __init__(self):
        super().__init__()
        self.net = model()

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


rank, size = start()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=LR)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        num_train_epochs=STEPS,
        per_device_train_batch_size=BATCH // size,
        max_grad_norm=0,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"x": x, "labels": y} for x, y in zip(*the_first(0), strict=True)]
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    Trainer(net, arguments, train_dataset=data, optimizers=(optimizer, constant)).train()
compare(net.net.state_dict(), alone(draw=the_first).state_dict())
