"""Sums of sparse tensors: random shapes and entries, both ways to exchange them, and wrong input."""

import random
import re

import torch
from torch import nn

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.named.sparse_tables import Choice
from ringcomm._src.torch.sparse import SparseSum

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.complex64]


class ByParts(Choice):
    """Adds up by parts in every call."""

    def take(self, joins):
        return True


def drawn(seed, rank):
    """Returns a rank's sparse tensors. Shapes depend on the seed only; values are small integers."""
    shapes, entries = random.Random(seed), random.Random(1000 * seed + rank)
    tensors = []
    for _ in range(shapes.randint(1, 4)):
        shape = [shapes.choice([1, 2, 5, 40]) for _ in range(shapes.randint(1, 3))]
        dims, dtype = shapes.randint(1, len(shape)), shapes.choice(DTYPES)
        count = entries.choice([0, 1, 6, 300])
        indices = torch.tensor([[entries.randrange(n) for _ in range(count)] for n in shape[:dims]])
        generator = torch.Generator().manual_seed(entries.randrange(1 << 30))
        values = torch.randint(-1, 2, (count, *shape[dims:]), generator=generator).to(dtype)
        tensors.append(torch.sparse_coo_tensor(indices.long(), values, shape, check_invariants=True))
    return tensors


def dense(tensor):
    """Returns the dense tensor, summed exactly."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(wide).to_dense()


def case_random_tensors():
    size = hvd.size()
    for seed in range(40):
        everyone = [drawn(seed, rank) for rank in range(size)]
        for choice in (None, ByParts()):
            total = SparseSum(everyone[hvd.rank()], f"drawn.{seed}", hvd.Sum, hvd.global_process_set, choice)
            for position, result in enumerate(total.wait()):
                tensors = [own[position] for own in everyone]
                expected = sum(dense(tensor) for tensor in tensors).to(result.dtype)
                assert result.is_coalesced() and result.shape == expected.shape
                assert torch.equal(dense(result).to(result.dtype), expected), (seed, choice, position)
                rows = {tuple(index) for tensor in tensors for index in tensor._indices().t().tolist()}
                assert [tuple(index) for index in result.indices().t().tolist()] == sorted(rows)
            assert total.test()


def case_an_average_is_rounded_once():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        values = torch.full((1, 3), 1.0 + hvd.rank() / 8, dtype=dtype)
        x = torch.sparse_coo_tensor([[2]], values, (4, 3), check_invariants=True)
        result = hvd.synchronize(hvd.sparse_allreduce_async(x, f"average.{dtype}", hvd.Average))
        mean = sum(1.0 + rank / 8 for rank in range(hvd.size())) / hvd.size()
        assert torch.equal(result.values(), torch.full((1, 3), mean).to(dtype))


def case_the_choice_follows_the_rows_in_common():
    choice, rows = Choice(), 4096
    for step in range(2 * Choice.CALLS):
        indices = torch.randperm(rows, generator=torch.Generator().manual_seed(step))
        x = torch.sparse_coo_tensor(indices[None], torch.ones(rows, 64), (rows, 64), check_invariants=True)
        (result,) = SparseSum([x], "common", hvd.Sum, hvd.global_process_set, choice).wait()
        assert torch.equal(result.to_dense(), torch.full((rows, 64), float(hvd.size())))
        assert (choice._left > 0) == (hvd.size() > 2)


def case_a_joined_rank_owns_no_rows():
    """The rank that joins adds no rows, and its part of them is not lost."""
    if hvd.rank() < hvd.size() - 1:
        rows = torch.arange(20)
        x = torch.sparse_coo_tensor(rows[None], torch.ones(20, 2), (20, 2), check_invariants=True)
        for choice in (None, ByParts()):
            (result,) = SparseSum([x], f"joined.{choice is None}", hvd.Sum, hvd.global_process_set, choice).wait()
            assert torch.equal(result.to_dense(), torch.full((20, 2), hvd.size() - 1.0))
    hvd.join()


def case_the_choice_restarts_after_a_join():
    """The last rank joins while the other ranks continue, and then all ranks make the same choice."""
    choice, rows = Choice(), 4096
    x = torch.sparse_coo_tensor(torch.arange(rows)[None], torch.ones(rows, 64), (rows, 64), check_invariants=True)

    def reduced():
        (result,) = SparseSum([x], "before and after a join", hvd.Sum, hvd.global_process_set, choice).wait()
        return result.values()[0, 0].item()

    for _ in range(2):
        assert reduced() == hvd.size()
    if hvd.rank() < hvd.size() - 1:
        for _ in range(Choice.CALLS - 2):  # the next call would gather
            assert reduced() == hvd.size() - 1
    hvd.join()
    for _ in range(3):
        assert reduced() == hvd.size()


def case_wrong_input_is_named_on_every_rank():
    if hvd.size() == 1:
        return
    width = 2 + (hvd.rank() == 1)
    x = torch.sparse_coo_tensor([[0]], torch.ones(1, width), (4, width), check_invariants=True)
    try:
        hvd.synchronize(hvd.sparse_allreduce_async(x, "embedding", hvd.Sum))
    except ringcomm.MismatchError as error:
        assert re.search(
            r"'embedding': rank 1 has a sparse float32 \(4, 3\) where rank 0 has float32 \(4, 2\)", str(error)
        )
        assert error.ranks == (0, 1)
    else:
        raise AssertionError("no error")


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 4, mode="sum", sparse=True).double() for _ in range(3))
        self.out = nn.Linear(4, 2).double()

    def forward(self, ids, used):
        return self.out(sum(self.tables[number](ids) for number in used))


def case_tables_of_which_some_ranks_use_some():
    """Every step trains like one process, whatever tables a rank uses, by backward or accumulated."""
    size, rank = hvd.size(), hvd.rank()
    for passes in (1, 2):
        torch.manual_seed(passes)
        net, plain = Tables(), Tables()
        plain.load_state_dict(net.state_dict())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.01), net.named_parameters(), backward_passes_per_step=passes
        )
        reference = torch.optim.SGD(plain.parameters(), lr=0.01)
        drawing = random.Random(passes)
        for _ in range(8):
            used = [
                [sorted(drawing.sample(range(3), drawing.randint(1, 3))) for _ in range(passes)] for _ in range(size)
            ]
            ids = torch.randint(
                50, (size, passes, 5, 3), generator=torch.Generator().manual_seed(drawing.randrange(99))
            )
            optimizer.zero_grad()
            for k in range(passes):
                net(ids[rank, k], used[rank][k]).square().sum().backward()
            optimizer.step()
            reference.zero_grad()
            for r in range(size):
                for k in range(passes):
                    (plain(ids[r, k], used[r][k]).square().sum() / size).backward()
            reference.step()
            for ours, right in zip(net.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(ours.detach(), right.detach(), rtol=1e-9, atol=1e-12)
