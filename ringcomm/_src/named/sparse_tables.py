"""All-reduce of sparse matrices ("tables"), such as gradients of embeddings, for all bindings.

All tables are reduced together. Each rank packs its rows (csrc/codecs/sparse_tables.hpp) and
gathers the rows of all ranks. If ranks have many rows in common, each rank adds up a part of the
rows instead, and the sums are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base.ops import Average
from ringcomm._src.calls import row_calls
from ringcomm._src.core import _core
from ringcomm._src.named import named
from ringcomm._src.named.process_sets import ProcessSet


class Table(NamedTuple):
    """Type and shape of a table."""

    dtype: int  # index into _core.DTYPES
    width: int  # elements of a row
    rows: int


class Entries(NamedTuple):
    """Addresses of the entries that a rank adds to a table."""

    indices: int  # int64
    values: int  # contiguous, of the table's dtype
    length: int  # number of entries
    memory: Any  # keeps the arrays alive


class Choice:
    """Chooses between a gather and adding up by parts, identically on all ranks.

    Between p ranks, a gather receives the rows of all ranks. By parts, a rank receives 1/p of them
    and then all sums. `record` measures both at a gather; its choice is valid for `CALLS` calls, at
    most until a join ends, because a joined rank makes no calls.
    """

    CALLS = 64
    SECOND_CALL = 1 << 18  # bytes that an exchange sends in the time that a further exchange costs

    def __init__(self) -> None:
        self._left = self._joins = 0

    def take(self, joins: int) -> bool:
        """Returns True if the next call adds up by parts. `joins`: joins that have ended."""
        self._left = self._left - 1 if self._left and joins == self._joins else 0
        self._joins = joins
        return self._left > 0

    def record(self, ranks: int, gathered: int, sums: int) -> None:
        """Records the bytes of a gather and of its sums, which are equal on all ranks."""
        if gathered // ranks + sums + self.SECOND_CALL < gathered:
            self._left = self.CALLS


class SparseReduction:
    """One all-reduce of tables, started when it is made. Every rank gives the same tables.

    Parameters
    ----------
    tables : Sequence[Table]
        Types and shapes, equal on all ranks.
    entries : Sequence[Entries]
        This rank's rows of each table; an index may occur more than once.
    name : str | None
        Name of the operation; None: numbered.
    process_set : ProcessSet
        The ranks that take part.
    choice : Choice | None
        The state of repeated reductions of these tables; None: gather.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        entries: Sequence[Entries],
        name: str | None,
        process_set: ProcessSet,
        choice: Choice | None = None,
    ) -> None:
        self._tables, self._name, self._set, self._choice = list(tables), name, process_set, choice
        self._sum = _core.SparseTables(self._tables)
        self._memory: list[Any] = [entry.memory for entry in entries]
        for number, entry in enumerate(entries):
            self._sum.add(number, entry.indices, entry.values, entry.length)
        ranks = process_set.size()
        self._by_parts = choice is not None and choice.take(process_set.joins)
        self._handle: Handle[Any] | None = None
        if self._by_parts:
            packed, counts = self._packed(ranks)
            self._handle = named.submit(
                process_set, row_calls.alltoall_any(arrays.source(packed), counts, ranks), f"{name}.parts"
            )
        elif ranks > 1 or not process_set.included():
            self._handle = self._gather()

    def test(self) -> bool:
        """Returns True if ``wait`` waits for no other rank, unless rows are added up by parts."""
        return self._handle is None or self._handle.test()

    def wait(self) -> _core.SparseTables:
        """Returns the sums. They reference memory of this object until they have been written."""
        if self._by_parts:
            assert self._handle is not None
            blocks, counts = self._handle.wait()
            if all(counts):  # else a rank has joined, and its part of the rows is missing
                self._add(blocks)
            self._handle = self._gather()
        if self._handle is not None:
            blocks = self._handle.wait()
            self._add(blocks)
            if self._choice is not None and not self._by_parts:
                self._choice.record(self._set.size(), blocks.nbytes, self._sum.packed_bytes(1)[0])
        return self._sum

    def divisor(self, op: Any) -> int:
        """Returns the number that divides the sums."""
        return self._set.size() if op == Average else 1

    def _packed(self, owners: int) -> tuple[np.ndarray[Any, Any], list[int]]:
        """Returns the sums as blocks of 64-bit numbers for `owners` ranks, and the blocks' sizes."""
        counts = [nbytes // 8 for nbytes in self._sum.packed_bytes(owners)]
        packed = np.empty(sum(counts), np.int64)
        self._sum.pack(owners, self._set.ranks[self._set.require_rank()], packed.ctypes.data)
        return packed, counts

    def _gather(self) -> Handle[Any]:
        packed, _ = self._packed(1)
        return named.submit(self._set, row_calls.allgather_any(arrays.source(packed)), self._name)

    def _add(self, blocks: np.ndarray[Any, Any]) -> None:
        """Replaces the sums by those of all blocks."""
        self._sum, self._memory = _core.SparseTables(self._tables), [blocks]
        self._sum.add_packed(self._name or "sparse", blocks.ctypes.data, blocks.nbytes)
