"""Reductions and scans by a user function, which combines values in rank order.

They are composed of collectives that move data. The function runs on the calling thread, never in
the core's worker, so it may be slow, and may raise. Small arrays, and arrays of non-blocking calls,
are gathered on every rank, and each rank combines all of them. For large arrays, each rank combines
one part and sends the result on, which moves no more bytes than a ring does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import arrays, buffers, numpy_kind
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.rows import even_parts, rows_of_parts, with_counts
from ringcomm._src.base import arguments
from ringcomm._src.base.ops import Max, UserOp
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

# Maximum total size of all ranks' arrays, in bytes, for which each rank combines all arrays itself.
GATHER_LIMIT = 256 << 10


class UserOpReduction:
    """One call of a reduction by a user op, on one rank.

    Parameters
    ----------
    collective : str
        "allreduce", "reduce", "reducescatter" (or MPI's name "reduce_scatter"), "scan", or "exscan"
        (its result on rank r is that of the scan on rank r - 1).
    wire, fields
        As for any call (call_base.request_fields). With a user op, only `name` may be set.
    root : int
        Root of a reduce.
    rows : Sequence[int] | None
        Rows of each rank's part of a reducescatter; None: even parts.
    """

    def __init__(
        self,
        collective: str,
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
        calls.require_only_a_name(collective, op, wire, fields)
        collective = collective.replace("_", "")
        root = arguments.root(collective, root, size)
        self.collective, self.op, self.root, self.rank, self.size = collective, op, root, rank, size
        self.has_result = rank == root if collective == "reduce" else rank > 0 if collective == "exscan" else True
        refusal = f"{collective} by the user-defined op {op.name}", "the op runs on NumPy arrays"
        if collective == "reducescatter":
            self.source = arrays.source(x).on_host(*refusal)
            rows = rows_of_parts(collective, self.source, rows, size)
            row_size = math.prod(self.source.shape[1:])
            self.target = arrays.result(out, self.source, (rows[rank], *self.source.shape[1:]))
        else:
            self.source, self.target = arrays.pair(x, out, self.has_result)
            self.source.on_host(*refusal)
            rows, row_size = even_parts(math.prod(self.source.shape), size), 1
        self.target.on_host(*refusal)
        self.counts = [n * row_size for n in rows]  # elements of each rank's part
        self.values = as_numpy(self.source)
        signature = buffers.signature(self.source.shape, f"{collective} by {op.name} of {self.source.label}")
        self.fields: dict[str, Any] = {
            "signature": with_counts(signature, rows, root),
            "name": fields["name"] or collective,
        }

    def allgather_request(self) -> Request:
        """Returns a request for an allgather, after which every rank combines all rows."""
        request = row_calls.allgather(
            self.values.reshape(1, -1), None, [1] * self.size, self.rank, self.size, **self.fields
        )
        gather_finish = request.finish

        def finish(operation: Any = None) -> Any:
            rows = gather_finish(operation)
            if self.collective == "reducescatter":
                start = sum(self.counts[: self.rank])
                rows = rows[:, start : start + self.counts[self.rank]]
            ranks = {"scan": self.rank + 1, "exscan": self.rank}.get(self.collective, self.size)
            return self._write_result(self._combine_rows(rows[:ranks])[-1]) if self.has_result else None

        request.finish = finish
        return request

    def run(self, call: Callable[[Request], Any]) -> Any:
        """Runs the reduction and returns its result; `call` runs a request and returns its result."""
        large = self.values.nbytes * self.size > GATHER_LIMIT and self.size > 2
        return self._run_in_parts(call) if large else call(self.allgather_request())

    def _run_in_parts(self, call: Callable[[Request], Any]) -> Any:
        part = self.counts[self.rank]
        request = row_calls.alltoall(self.values, None, self.counts, [part] * self.size, self.size, **self.fields)
        rows = call(request).reshape(self.size, part)
        if self.collective == "reducescatter":
            return self._write_result(self._combine_rows(rows)[-1])
        prefixes = self._combine_rows_on_all_ranks(call, rows)
        result = call(self._distribution_request(prefixes, part))
        return self._write_result(result) if self.has_result else None

    def _distribution_request(self, prefixes: Any, part: int) -> Request:
        """Returns the request that sends the part combined here to the ranks that need it."""
        if self.collective == "allreduce":
            return row_calls.allgather(prefixes[-1], None, self.counts, self.rank, self.size, **self.fields)
        sent, received = [part] * self.size, self.counts if self.has_result else [0] * self.size
        given = prefixes.reshape(-1)
        if self.collective == "reduce":
            given, sent = prefixes[-1], [part if rank == self.root else 0 for rank in range(self.size)]
        elif self.collective == "exscan":
            given, sent[0] = prefixes[:-1].reshape(-1), 0
        return row_calls.alltoall(given, None, sent, received, self.size, **self.fields)

    def _combine_rows_on_all_ranks(self, call: Callable[[Request], Any], rows: Any) -> Any:
        """Combines the rows; if the function raises on one rank, raises on every rank."""
        error: Exception | None = None
        prefixes = None
        try:
            prefixes = self._combine_rows(rows)
        except Exception as raised:
            error = raised
        failed = np.zeros(self.size, bool)
        failed[self.rank] = error is not None
        call(calls.allreduce(*arrays.pair(failed, failed), Max, name=self.fields["name"]))
        if error is not None:
            raise error
        if failed.any():
            ranks = ", ".join(str(rank) for rank in np.flatnonzero(failed))
            raise RuntimeError(
                f"{self.collective}: the user-defined op {self.op.name} raised an exception on rank {ranks}"
            )
        return prefixes

    def _combine_rows(self, rows: Any) -> Any:
        """Combines rows in place: each row becomes the combination of the rows up to it."""
        for prefix, row in itertools.pairwise(rows):
            self._combine(prefix, row)
        return rows

    def _combine(self, prefix: Any, row: Any) -> None:
        given = self.op.function(prefix, row)
        if given is not None and given is not row:
            raise TypeError(
                f"{self.collective}: {self.op.name}(invec, inoutvec) must put its result into inoutvec "
                f"(inoutvec[:] = ...); it returned a {type(given).__name__}"
            )

    def _write_result(self, result: Any) -> Any:
        as_numpy(self.target)[:] = result
        return self.target.write_back()


def as_numpy(buffer: Buffer) -> Any:
    """Returns a buffer's memory as a 1-d NumPy array. TypeError: NumPy lacks its dtype."""
    if isinstance(buffer.array, np.ndarray):
        return buffer.array.reshape(-1)
    try:
        dtype = np.dtype(buffer.label)
    except TypeError:
        raise TypeError(f"NumPy has no dtype {buffer.label}, but a user-defined op needs NumPy arrays") from None
    if buffer.count == 0:
        return np.empty(0, dtype)
    nbytes = buffer.count * _core.ITEM_SIZES[buffer.dtype]
    return np.asarray(numpy_kind.CoreMemory(buffer.address, nbytes, buffer.array)).view(dtype)
