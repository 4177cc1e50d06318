"""Cases for sparse gradients on a device: weights equal the CPU's, however they are sent."""

import torch
from cases_torch_training import STEPS, equal, trained
from on_device import DEVICE, busy, cuda
from torch import nn

import ringcomm.torch as hvd


class Words(nn.Module):
    """A model with an embedding of sparse gradients on some ranks, and a dense layer."""

    def __init__(self, sparse=True):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.out = nn.Embedding(8, 3, sparse=sparse), nn.Linear(3, 2)

    def forward(self, words):
        return self.out(self.words(words))


def loss_of(net, step, device):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return net(torch.randint(0, 8, (4,), generator=generator).to(device)).square().mean()


def train(net, optimizer, device):
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        loss_of(net, step, device).backward()
        optimizer.step()


def case_sparse_gradients():
    make = lambda p: torch.optim.SGD(p, lr=0.5)  # noqa: E731
    for options in ({"op": hvd.Average}, {"op": hvd.Sum}, {"sparse_as_dense": True}):
        mine, theirs = (trained(device, train, Words(), make=make, **options) for device in (DEVICE, "cpu"))
        equal(mine, theirs)
    mine, theirs = (trained(device, train, Words(hvd.rank() == 0), make=make) for device in (DEVICE, "cpu"))
    equal(mine, theirs)


def case_sums_of_several_streams():
    """Sums gradients that are made late on one stream, and waits on another."""
    side, other = cuda.Stream(), cuda.Stream()
    rows = torch.arange(3).roll(hvd.rank()).unsqueeze(0).to(DEVICE)
    for turn in range(2):
        values = torch.zeros(3, 500, device=DEVICE)
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            busy(side, 5)
            values.add_(hvd.rank() + turn)
            mine = torch.sparse_coo_tensor(rows, values, (3, 500), check_invariants=False)
            handle = hvd.sparse_allreduce_async(mine, f"several streams {turn}", hvd.Sum)
            del mine, values
        with cuda.stream(other):
            total = handle.wait().to_dense()
            assert total.cpu().eq(sum(range(hvd.size())) + turn * hvd.size()).all()
