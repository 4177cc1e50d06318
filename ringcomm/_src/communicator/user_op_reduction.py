"""Reductions and scans by a user function, which combines values in rank order.

They are composed of collectives that move data. The function runs on the calling thread, never in the core's worker,
so it may be slow, and may raise. Small arrays, and arrays of non-blocking calls, are gathered on every rank, and each
rank combines all of them. For large arrays, each rank combines one part and sends the result on, which moves no more
bytes than a ring does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import arrays, buffers, numpy_kind
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.rows import parts, rows_of_parts, signed
from ringcomm._src.base import arguments
from ringcomm._src.base.ops import Max, UserOp
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

TOGETHER = 256 << 10  # bytes of all ranks' arrays up to which each rank combines all of them


class UserOpReduction:
    """One call of a reduction by a user op, on one rank.

    Args:
        what: "allreduce", "reduce", "reducescatter" (or MPI's name "reduce_scatter"), "scan", or "exscan" (its result
            is the scan of the rank before).
        wire, fields: as for any call (call_base.request_fields); a user op allows the name only.
        root: root of a reduce.
        rows: rows of each rank's part of a reducescatter; None: even parts.
    """

    def __init__(
        self,
        what: str,
        x: Any,
        out: Any,
        op: UserOp,
        rank: int,
        size: int,
        wire: Any,
        fields: dict[str, Any],
        root: int = 0,
        rows: Sequence[int] | None = None,
    ) -> None:
        calls.require_only_a_name(what, op, wire, fields)
        what = what.replace("_", "")
        root = arguments.root(what, root, size)
        self.what, self.op, self.root, self.rank, self.size = what, op, root, rank, size
        self.here = rank == root if what == "reduce" else rank > 0 if what == "exscan" else True
        refusal = f"{what} by the function {op.name}", "that runs in Python, on NumPy arrays"
        if what == "reducescatter":
            self.source = arrays.source(x).on_host(*refusal)
            rows = rows_of_parts(what, self.source, rows, size)
            unit = math.prod(self.source.shape[1:])
            self.target = arrays.result(out, self.source, (rows[rank], *self.source.shape[1:]))
        else:
            self.source, self.target = arrays.pair(x, out, self.here)
            self.source.on_host(*refusal)
            rows, unit = parts(math.prod(self.source.shape), size), 1
        self.target.on_host(*refusal)
        self.counts = [n * unit for n in rows]  # elements of each rank's part
        self.mine = as_numpy(self.source)
        sign = buffers.signature(self.source.shape, f"{what} by {op.name} of {self.source.label}")
        self.fields: dict[str, Any] = {"sign": signed(sign, rows, root), "name": fields["name"] or what}

    def gathered(self) -> Request:
        """Returns a request for the complete reduction: an allgather, after which every rank combines all rows."""
        request = row_calls.allgather(
            self.mine.reshape(1, -1), None, [1] * self.size, self.rank, self.size, **self.fields
        )
        gather = request.finish

        def finish(operation: Any = None) -> Any:
            rows = gather(operation)
            if self.what == "reducescatter":
                start = sum(self.counts[: self.rank])
                rows = rows[:, start : start + self.counts[self.rank]]
            ranks = {"scan": self.rank + 1, "exscan": self.rank}.get(self.what, self.size)
            return self._written(self._folded(rows[:ranks])[-1]) if self.here else None

        request.finish = finish
        return request

    def run(self, call: Callable[[Request], Any]) -> Any:
        """Runs the reduction and returns its result; `call` runs a request and returns its result."""
        large = self.mine.nbytes * self.size > TOGETHER and self.size > 2
        return self._in_parts(call) if large else call(self.gathered())

    def _in_parts(self, call: Callable[[Request], Any]) -> Any:
        part = self.counts[self.rank]
        request = row_calls.alltoall(self.mine, None, self.counts, [part] * self.size, self.size, **self.fields)
        rows = call(request).reshape(self.size, part)
        if self.what == "reducescatter":
            return self._written(self._folded(rows)[-1])
        folded = self._folded_everywhere(call, rows)
        result = call(self._handed_on(folded, part))
        return self._written(result) if self.here else None

    def _handed_on(self, folded: Any, part: int) -> Request:
        """Returns the request that sends the part combined here to the ranks that need it."""
        if self.what == "allreduce":
            return row_calls.allgather(folded[-1], None, self.counts, self.rank, self.size, **self.fields)
        sent, received = [part] * self.size, self.counts if self.here else [0] * self.size
        given = folded.reshape(-1)
        if self.what == "reduce":
            given, sent = folded[-1], [part if rank == self.root else 0 for rank in range(self.size)]
        elif self.what == "exscan":
            given, sent[0] = folded[:-1].reshape(-1), 0
        return row_calls.alltoall(given, None, sent, received, self.size, **self.fields)

    def _folded_everywhere(self, call: Callable[[Request], Any], rows: Any) -> Any:
        """Combines the rows; if the function raises on one rank, raises on every rank."""
        error: Exception | None = None
        folded = None
        try:
            folded = self._folded(rows)
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

    def _folded(self, rows: Any) -> Any:
        """Combines rows in place: each row becomes the combination of the rows up to it."""
        for before, row in itertools.pairwise(rows):
            self._combine(before, row)
        return rows

    def _combine(self, before: Any, row: Any) -> None:
        given = self.op.function(before, row)
        if given is not None and given is not row:
            raise TypeError(
                f"{self.what}: {self.op.name}(invec, inoutvec) must put its result into inoutvec "
                f"(inoutvec[:] = ...); it returned a {type(given).__name__}"
            )

    def _written(self, result: Any) -> Any:
        as_numpy(self.target)[:] = result
        return self.target.write_back()


def as_numpy(buffer: Buffer) -> Any:
    """Returns a buffer's memory as a one-dimensional NumPy array. Raises TypeError if NumPy lacks its dtype."""
    if isinstance(buffer.array, np.ndarray):
        return buffer.array.reshape(-1)
    try:
        dtype = np.dtype(buffer.label)
    except TypeError:
        raise TypeError(f"NumPy has no {buffer.label}, which a function would be called with") from None
    if buffer.count == 0:
        return np.empty(0, dtype)
    nbytes = buffer.count * _core.ITEM_SIZES[buffer.dtype]
    return np.asarray(numpy_kind.CoreMemory(buffer.address, nbytes, buffer.array)).view(dtype)
