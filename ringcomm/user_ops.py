"""Reductions by a function of the user's: composed of collectives that move data, and folded in the order of ranks.

The function runs on the thread that wants the result, never in the core's worker, so it may take its time, and raise.
Small arrays, and non-blocking calls, are gathered on every rank, which folds all of them; of large ones each rank folds
one part and hands it on, which moves no more bytes than a ring does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringcomm import _core, arrays, calls
from ringcomm._core import Request
from ringcomm.arrays import Buffer
from ringcomm.calls import ALLREDUCE, REDUCE, REDUCESCATTER
from ringcomm.ops import Max, UserOp

TOGETHER = 256 << 10  # bytes of all ranks' arrays that each rank may as well fold itself


class Reduction:
    """One call, on one rank. `root`: of a reduce. `how`: fields of a request, of which a name may be given only."""

    def __init__(
        self,
        collective: int,
        x: Any,
        out: Any,
        op: UserOp,
        root: int,
        rank: int,
        size: int,
        wire: Any,
        how: dict[str, Any],
    ) -> None:
        self.what = _core.COLLECTIVES[collective]
        name = how["name"]
        if wire is not None or how["algorithm"] or not how["pre"] == how["post"] == 1:
            raise ValueError(
                f"{self.what}: the function {op.name} is no op of the core: leave out algorithm, wire and the factors"
            )
        self.collective, self.op, self.root, self.rank, self.size = collective, op, root, rank, size
        self.here = collective != REDUCE or rank == root
        if not 0 <= root < size:
            raise ValueError(f"{self.what}: root {root} is not a rank of this communicator of {size}")
        if collective == REDUCESCATTER:
            self.source = arrays.source(x)
            calls.require_rows(self.what, self.source)
            rows, row = self.source.shape[0], self.source.shape[1:]
            self.target = arrays.result(out, self.source, (calls.part(rows, size, rank), *row))
            unit = int(np.prod(row, dtype=np.int64))
        else:
            self.source, self.target = arrays.pair(x, out) if self.here else arrays.pair(x, x, writes=False)
            rows, unit = int(np.prod(self.source.shape, dtype=np.int64)), 1
        self.counts = [calls.part(rows, size, r) * unit for r in range(size)]  # of each rank's part, in elements
        self.mine = as_numpy(self.source)
        self.fields = {"sign": arrays.signature(self.source.shape, f"{op.name} of {self.source.label}"), "name": name}

    def gathered(self) -> Request:
        """All of it in one call, whose result every rank folds itself."""
        request = calls.allgather(self.mine.reshape(1, -1), None, [1] * self.size, self.rank, self.size, **self.fields)
        gather = request.finish

        def finish(operation: Any = None) -> Any:
            rows = gather(operation)
            if self.collective == REDUCESCATTER:
                start = sum(self.counts[: self.rank])
                rows = rows[:, start : start + self.counts[self.rank]]
            return self._written(self._fold(rows)) if self.here else None

        request.finish = finish
        return request

    def run(self, call: Callable[[Request], Any]) -> Any:
        """`call` runs a request and gives its result."""
        large = self.mine.nbytes * self.size > TOGETHER and self.size > 2
        return self._in_parts(call) if large else call(self.gathered())

    def _in_parts(self, call: Callable[[Request], Any]) -> Any:
        part = self.counts[self.rank]
        request = calls.alltoall(self.mine, None, self.counts, [part] * self.size, self.size, **self.fields)
        rows = call(request).reshape(self.size, part)
        if self.collective == REDUCESCATTER:
            return self._written(self._fold(rows))
        folded = self._fold_together(call, rows)
        if self.collective == ALLREDUCE:
            request = calls.allgather(folded, None, self.counts, self.rank, self.size, **self.fields)
        else:
            sent = [part if rank == self.root else 0 for rank in range(self.size)]
            received = self.counts if self.here else [0] * self.size
            request = calls.alltoall(folded, None, sent, received, self.size, **self.fields)
        result = call(request)
        return self._written(result) if self.here else None

    def _fold_together(self, call: Callable[[Request], Any], rows: Any) -> Any:
        """Every rank raises if the function does on one."""
        error: Exception | None = None
        folded = None
        try:
            folded = self._fold(rows)
        except Exception as raised:
            error = raised
        failed = np.zeros(self.size, bool)
        failed[self.rank] = error is not None
        call(calls.allreduce(*arrays.pair(failed, failed), Max, name=self.fields["name"]))
        if error is not None:
            raise error
        if failed.any():
            ranks = ", ".join(str(rank) for rank in np.flatnonzero(failed))
            raise RuntimeError(f"{self.what}: the function {self.op.name} raised an exception on rank {ranks}")
        return folded

    def _fold(self, rows: Any) -> Any:
        total = rows[0]
        for row in rows[1:]:
            given = self.op.function(total, row)
            if given is not None and given is not row:
                raise TypeError(
                    f"{self.what}: {self.op.name}(invec, inoutvec) must put its result into inoutvec "
                    f"(inoutvec[:] = ...); it returned a {type(given).__name__}"
                )
            total = row
        return total

    def _written(self, result: Any) -> Any:
        as_numpy(self.target)[:] = result
        return self.target.write_back()


def as_numpy(buffer: Buffer) -> Any:
    """A buffer's memory as a one-dimensional NumPy array of its dtype. TypeError if NumPy has no such dtype."""
    if isinstance(buffer.array, np.ndarray):
        return buffer.array.reshape(-1)
    try:
        dtype = np.dtype(buffer.label)
    except TypeError:
        raise TypeError(f"NumPy has no {buffer.label}, which a function would be called with") from None
    nbytes = buffer.count * _core.ITEM_SIZES[buffer.dtype]
    if nbytes == 0:
        return np.empty(0, dtype)
    return np.asarray(arrays.CoreMemory(buffer.address, nbytes, buffer.array)).view(dtype)
