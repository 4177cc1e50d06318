"""Runs Lightning on ringcomm: the process group exists before fit(), which then uses it.

    ringrun -np 2 python examples/parallel/with_lightning.py        # pip install lightning

`devices` is the number of ranks on a host, `num_nodes` that of hosts.
DDPStrategy(process_group_backend="ringcomm") has the same effect, but the number of devices must
then be known without the group.
"""

import lightning
import torch
from common import LR, STEPS, alone, compare, loader, model, start, the_first
from torch import nn


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model()

    def training_step(self, batch, number):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=LR)


rank, size = start()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=size,
    strategy="ddp",
    max_epochs=STEPS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
module = Module()
trainer.fit(module, loader(size))
compare(module.net.state_dict(), alone(draw=the_first).state_dict())
