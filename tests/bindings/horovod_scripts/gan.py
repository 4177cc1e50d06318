"""A generator and a discriminator, each with a separate optimizer, on points of a ring."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
args = parser.parse_args()

hvd.init()
torch.manual_seed(3)
generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2)).double()
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).double()
lr = 2e-3
optimizer_g = torch.optim.Adam(generator.parameters(), lr=lr, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=lr, betas=(0.5, 0.999))
for net, optimizer in ((generator, optimizer_g), (discriminator, optimizer_d)):
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer_g = hvd.DistributedOptimizer(optimizer_g, named_parameters=generator.named_parameters(prefix="g"))
optimizer_d = hvd.DistributedOptimizer(optimizer_d, named_parameters=discriminator.named_parameters(prefix="d"))
criterion = nn.BCEWithLogitsLoss()


def share(tensor):
    return tensor.chunk(hvd.size())[hvd.rank()]


for step in range(args.steps):
    same_everywhere = torch.Generator().manual_seed(step)
    angle = 6.2832 * torch.rand(args.batch_size, 1, generator=same_everywhere, dtype=torch.float64)
    real = share(torch.cat([angle.cos(), angle.sin()], 1))
    noise = share(torch.randn(args.batch_size, 4, generator=same_everywhere, dtype=torch.float64))
    ones, zeros = torch.ones(len(real), 1).double(), torch.zeros(len(real), 1).double()

    discriminator.zero_grad()  # also clears the gradients of the generator's step
    loss_d = criterion(discriminator(real), ones) + criterion(discriminator(generator(noise).detach()), zeros)
    loss_d.backward()
    optimizer_d.step()

    generator.zero_grad()
    loss_g = criterion(discriminator(generator(noise)), ones)
    loss_g.backward()
    optimizer_g.step()

loss_d, loss_g = (hvd.allreduce(loss.detach(), name=name) for loss, name in ((loss_d, "d"), (loss_g, "g")))
checksum = sum(p.detach().abs().sum() for net in (generator, discriminator) for p in net.parameters())
everybody = hvd.allgather(checksum)
if hvd.rank() == 0:
    print(
        f"loss_d {loss_d.item():.9f} loss_g {loss_g.item():.9f} checksum {checksum.item():.9f} "
        f"spread {(everybody.max() - everybody.min()).item():.1e}",
        flush=True,
    )
