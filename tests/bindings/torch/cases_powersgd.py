"""Low-rank factors compared with PyTorch's hook, run by one process on the sum of all data."""

from types import SimpleNamespace
from unittest import mock

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

import ringcomm.torch as hvd

RANK, STEPS = 3, 6


class Bucket:
    """The part of ``distributed.GradBucket`` that the hook uses; Python cannot create one."""

    def __init__(self, matrix):
        self._flat, self._shape = matrix.flatten().clone(), matrix.shape

    def index(self):
        return 0

    def buffer(self):
        return self._flat

    def gradients(self):
        return [self._flat.view(self._shape)]

    def is_last(self):
        return True


def reduced_alone(tensor, group, async_op):
    future = torch.futures.Future()
    future.set_result([tensor])
    return SimpleNamespace(get_future=lambda: future)


def torchs(matrix, residual, right):
    """Runs the hook on a matrix, residual and old factor. Returns result and new residual."""
    state = PowerSGDState(SimpleNamespace(size=lambda: 1), RANK, start_powerSGD_iter=2, min_compression_rate=1)
    state.iter = 2
    state.error_dict[0] = residual.flatten().clone()
    state.q_memory_dict[0] = right.contiguous().flatten()
    state.p_memory_dict[0] = torch.empty(matrix.shape[0] * RANK)
    with mock.patch.object(distributed, "all_reduce", reduced_alone):
        result = powerSGD_hook(state, Bucket(matrix)).wait().view(matrix.shape)
    return result, state.error_dict[0].view(matrix.shape)


def gradient(shape, step, rank):
    """Returns a sum of a few directions, which all steps share, and noise."""
    shared, own = torch.Generator().manual_seed(5), torch.Generator().manual_seed(100 * step + rank)
    left, right = torch.randn(shape[0], 5, generator=shared), torch.randn(5, shape[1:].numel(), generator=shared)
    weights = 0.3 ** torch.arange(5) * torch.randn(5, generator=own)
    return ((left * weights) @ right).view(shape) + 0.1 * torch.randn(shape, generator=own)


def case_low_rank_is_torchs():
    if hvd.size() == 1:
        return
    for shape in (torch.Size((24, 17)), torch.Size((9, 60)), torch.Size((16, 4, 3, 3))):
        rows = shape[0]
        weight = nn.Parameter(torch.zeros(shape))
        wire = hvd.Compression.powersgd(RANK, min_compression_rate=1, everywhere=True, min_elements=1, warmup_steps=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), [("w", weight)], compression=wire, op=hvd.Sum
        )
        before, residual = None, torch.zeros(rows, weight[0].numel())
        for step in range(STEPS):
            optimizer.zero_grad()
            (weight * gradient(shape, step, hvd.rank())).sum().backward()
            optimizer.step()
            mine = weight.grad.view(rows, -1).clone()
            now = optimizer.compression_state_dict()["w"].view(rows, -1)
            if before is not None:
                whole = sum(gradient(shape, step, rank) for rank in range(hvd.size())).view(rows, -1)
                # spans the same space as Q of that step
                right = torch.linalg.svd(before, full_matrices=False).Vh[:RANK].T
                result, left = torchs(whole, residual, right)
                scale = whole.abs().max()
                torch.testing.assert_close(mine / scale, result / scale, atol=2e-4, rtol=0)
                torch.testing.assert_close(now / scale, left / scale, atol=2e-4, rtol=0)
            before, residual = mine, now
