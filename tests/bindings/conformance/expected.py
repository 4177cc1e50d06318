"""Expected results of operations, from one process; process sets; checks after errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import ringcomm.torch as hvd

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
NUMERIC = [*FLOATING, *INTEGER]
MOVED = [*NUMERIC, torch.bool, torch.complex64]
OPS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]

_sets: list[hvd.ProcessSet] = []


def sets() -> list[hvd.ProcessSet]:
    """Returns the world and two sets that overlap with it and, on four ranks, with each other."""
    if not _sets or _sets[0].process_set_id is None:
        n = hvd.size()
        _sets[:] = [hvd.add_process_set(ranks) for ranks in (range(0, n, 2), range(1, n)) if len(ranks) < n]
    return [hvd.global_process_set, *_sets]


def my_sets() -> list[hvd.ProcessSet]:
    return [one for one in sets() if one.included()]


def forget_sets() -> None:
    """Discards the sets after a shutdown."""
    _sets.clear()


def value(rank: int, shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Returns a rank's input: small integers, which every dtype represents exactly."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    low, high = (0, 2) if dtype == torch.bool else (0, 4) if dtype == torch.uint8 else (-3, 4)
    return torch.randint(low, high, tuple(shape), generator=generator).to(dtype)


def mine(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return value(hvd.rank(), shape, dtype, seed)


def reduced(
    op: Any, shape: Sequence[int], dtype: torch.dtype, seed: int = 0, ranks: Sequence[int] | None = None
) -> torch.Tensor:
    values = torch.stack([value(r, shape, dtype, seed) for r in (range(hvd.size()) if ranks is None else ranks)])
    if dtype == torch.bool:
        return values.all(0) if op in (hvd.Min, hvd.Product) else values.any(0)
    wide = values.to(torch.float64 if dtype.is_floating_point else torch.int64)
    if op == hvd.Average:
        mean = wide.double().mean(0)
        return mean.to(dtype) if dtype.is_floating_point else mean.trunc().to(dtype)
    ways: dict[Any, Callable[[], torch.Tensor]] = {
        hvd.Sum: lambda: wide.sum(0),
        hvd.Product: lambda: wide.prod(0),
        hvd.Min: lambda: wide.amin(0),
        hvd.Max: lambda: wide.amax(0),
    }
    return ways[op]().to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype.is_floating_point:
        torch.testing.assert_close(a, b, rtol=1e-2 if a.element_size() == 2 else 1e-6, atol=1e-6)
    else:
        assert torch.equal(a, b), (a, b)


def raises(kind: type[BaseException], function: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Returns the message of the expected error."""
    try:
        result = function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function} gave {result!r} instead of {kind.__name__}")


def alive() -> None:
    """Checks after an error that every rank is alive, and that operations return the right result."""
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))
    hvd.barrier()
