"""Defines the inputs, expected results, calls and bandwidth factors of `ringcomm bench`.

bench.py makes a Case for each size and times its calls.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ringcomm._src.base.ops import as_op
from ringcomm._src.cli.bench_device import Buffers

PERIOD = 13  # period of inputs, in elements: 13 elements determine the expected result of any length
PATTERN = (3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 0, 4, 2)
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SHARED_ARRAYS = "shared_arrays"  # a contestant beside the algorithms: the automatic choice on shared arrays
MPI_OPS = {  # op -> MPI's op for numbers, and for booleans
    **{"sum": ("SUM", "LOR"), "average": ("SUM", "LOR"), "max": ("MAX", "LOR")},
    **{"min": ("MIN", "LAND"), "product": ("PROD", "LAND")},
}
REDUCING = ("allreduce", "reduce", "reducescatter", "scan", "exscan")
FULL_RESULTS = (
    "allreduce",
    "reduce",
    "broadcast",
    "scan",
    "exscan",
)  # the result has the input's number of elements
Array = npt.NDArray[Any]
Part = tuple[int, int, Array, int]  # first element, count, table of PERIOD elements, table index of the first


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns NumPy's dtype of this name. Raises ValueError for bfloat16 without ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError("bfloat16 in NumPy needs the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def input_table(rank: int, op: str, dtype: np.dtype[Any]) -> Array:
    """Returns the input of a rank: small integers, different by rank, that no op rounds."""
    if dtype == np.bool_:
        return np.array([(j + rank) % PERIOD < 5 for j in range(PERIOD)])
    if op == "product":
        return np.array([2 if j == rank % 5 else 1 for j in range(PERIOD)]).astype(dtype)
    return np.array([value + rank % 3 for value in PATTERN]).astype(dtype)


def reduced_table(size: int, op: str, dtype: np.dtype[Any]) -> Array:
    """Returns the reduction of all ranks' tables.

    Integer averages round toward zero; integer sums and products wrap.
    """
    tables = np.stack([input_table(rank, op, dtype) for rank in range(size)])
    if dtype == np.bool_:
        return np.asarray(tables.any(0) if op in ("sum", "max", "average") else tables.all(0))
    if op in ("min", "max"):
        return np.asarray((np.minimum if op == "min" else np.maximum).reduce(tables, axis=0))
    wide = np.int64 if dtype.kind in "iu" else np.float64
    total = tables.astype(wide).prod(0) if op == "product" else tables.astype(wide).sum(0)
    if op == "average":
        total = total // size if wide is np.int64 else total / size
    return np.asarray(total.astype(dtype))


def bus_factor(collective: str, ranks: int) -> float:
    """Returns busbw / algbw, as the PERFORMANCE.md of nccl-tests defines it."""
    share = (ranks - 1) / ranks
    factors = {"allreduce": 2 * share, "allgather": share, "reducescatter": share, "alltoall": share}
    return factors.get(collective, 1.0)


@dataclass
class Case:
    """One collective at one size on this rank.

    `comm` and `world` are the communicators of all ranks, of ringcomm and of mpi4py.
    """

    collective: str
    comm: Any
    world: Any
    dtype_name: str
    op: str
    root: int
    nbytes: int
    in_place: bool
    shared: bool = False  # True: ringcomm's arrays are stored in the host's shared memory
    wire: Any = None  # wire format of ringcomm's all-reduce
    device: int | None = None  # GPU with ringcomm's arrays; `input` and `output` are then host copies of them

    def __post_init__(self) -> None:
        self.rank, self.size = self.world.rank, self.world.size
        self.dtype = numpy_dtype(self.dtype_name)
        item, size = self.dtype.itemsize, self.size
        divided = self.collective in ("allgather", "reducescatter", "alltoall")
        self.part = self.nbytes // item // size if divided else 0
        self.count = 0 if self.collective == "barrier" else self.part * size if divided else self.nbytes // item
        input_count = self.part if self.collective == "allgather" else self.count
        output_count = self.part if self.collective == "reducescatter" else self.count
        self.input = self._zeros(input_count)
        aliased = self.collective == "broadcast" or (self.in_place and self.collective == "allreduce")
        self.output = self.input if aliased else self._zeros(output_count)
        self.buffers = (
            None if self.device is None else Buffers(self.device, self.dtype, input_count, output_count, aliased)
        )
        self.templates: dict[bytes, Array] = {}
        self.shift = 0

    def _zeros(self, count: int) -> Array:
        if not self.shared:
            return np.zeros(count, self.dtype)
        array: Array = self.comm.empty(count, self.dtype)
        array.fill(0)
        return array

    @property
    def bus_factor(self) -> float:
        return bus_factor(self.collective, self.size)

    # ---- inputs and answers ----
    def refill(self, shift: int) -> None:
        """Writes new inputs on the ranks that own them, and fills the outputs.

        The results expected for consecutive shifts differ.
        """
        self.shift = shift
        self.output.fill(0)
        if self.collective != "broadcast" or self.rank == self.root:
            np.copyto(self.input, self._tiled(input_table(self.rank, self.op, self.dtype), shift, len(self.input)))
        if self.buffers is not None:
            self.buffers.refill(self.input)

    def wrong(self) -> int:
        """Reads all of this rank's result, and returns the number of wrong elements.

        With a wire format, all elements count as wrong if the results of the ranks differ.
        """
        if self.buffers is not None:
            np.copyto(self.output, self.buffers.output.get())
        if self.wire is not None:
            sums = self.world.allgather(zlib.crc32(self.output.tobytes()))
            return 0 if len(set(sums)) == 1 else self.count
        if self.collective == "reduce" and self.rank != self.root:
            return 0
        return sum(
            self._count_different(self.output[first : first + count], self._tiled(table, index, count))
            for first, count, table, index in self._expected_parts()
            if count
        )

    def _expected_parts(self) -> list[Part]:
        def input_of(rank: int) -> Array:
            return input_table(rank, self.op, self.dtype)

        if self.collective in ("allreduce", "reduce"):
            return [(0, self.count, reduced_table(self.size, self.op, self.dtype), self.shift)]
        if self.collective in ("scan", "exscan"):
            ranks = self.rank + (self.collective == "scan")
            return [(0, self.count, reduced_table(ranks, self.op, self.dtype), self.shift)] if ranks else []
        if self.collective == "broadcast":
            return [(0, self.count, input_of(self.root), self.shift)]
        if self.collective == "allgather":
            return [(r * self.part, self.part, input_of(r), self.shift) for r in range(self.size)]
        start = self.shift + self.rank * self.part
        if self.collective == "reducescatter":
            return [(0, self.part, reduced_table(self.size, self.op, self.dtype), start)]
        if self.collective == "alltoall":
            return [(r * self.part, self.part, input_of(r), start) for r in range(self.size)]
        return []

    def _tiled(self, table: Array, start: int, count: int) -> Array:
        key = table.tobytes()
        if key not in self.templates:
            longest = max(len(self.input), self.part, self.count if self.collective in FULL_RESULTS else 0)
            self.templates[key] = np.resize(table, longest + PERIOD)
        return self.templates[key][start % PERIOD : start % PERIOD + count]

    def _count_different(self, actual: Array, expected: Array) -> int:
        if self.op == "average" and self.dtype_name in EPSILON and self.collective in REDUCING:
            distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
            return int(
                np.count_nonzero(
                    ~(distance <= self.size * EPSILON[self.dtype_name] * np.abs(expected.astype(np.float64)))
                )
            )
        return int(np.count_nonzero(actual != expected))

    # ---- calls ----
    def ringcomm_call(self, algorithm: str | None) -> Callable[[], object]:
        """Returns the ordered call of ringcomm. `algorithm` None: the communicator chooses."""
        x, y = (self.input, self.output) if self.buffers is None else (self.buffers.input, self.buffers.output)
        comm, rows = self.comm, [self.part] * self.size  # MPI_Allgather is also given the counts
        op = as_op(self.op)
        calls: dict[str, Callable[[], object]] = {
            "allreduce": lambda: comm.allreduce(x, op=op, out=y, algorithm=algorithm, wire=self.wire),
            "reduce": lambda: comm.reduce(x, root=self.root, op=op, out=y, algorithm=algorithm),
            "broadcast": lambda: comm.broadcast(x, root=self.root, out=x, algorithm=algorithm),
            "allgather": lambda: comm.allgather(x, rows=rows, out=y, algorithm=algorithm),
            "reducescatter": lambda: comm.reducescatter(x, op=op, out=y, algorithm=algorithm),
            "alltoall": lambda: comm.alltoall(x, out=y, algorithm=algorithm),
            "barrier": lambda: comm.barrier(algorithm=algorithm),
            "scan": lambda: comm.scan(x, op=op, out=y, algorithm=algorithm),
            "exscan": lambda: comm.exscan(x, op=op, out=y, algorithm=algorithm),
        }
        call = calls[self.collective]
        return call if self.buffers is None else self.buffers.synchronized(call)

    def mpi_call(self) -> Callable[[], object] | None:
        """Returns MPI's collective as mpi4py's buffer call; None if MPI does not have the dtype.

        For arrays on a GPU, the call copies to the host before and back afterwards, as a program
        does for an MPI that is not GPU-aware.
        """
        call = self._mpi_on_host()
        return (
            call if call is None or self.buffers is None else self.buffers.on_host_copies(call, self.input, self.output)
        )

    def _mpi_on_host(self) -> Callable[[], object] | None:
        from mpi4py import MPI

        if self.dtype_name in ("float16", "bfloat16"):
            return None
        logical = self.dtype == np.bool_
        op = getattr(MPI, MPI_OPS[self.op][int(logical)])
        world, x, y, root = self.world, self.input, self.output, self.root
        source = MPI.IN_PLACE if x is y else x
        calls: dict[str, Callable[[], object]] = {
            "allreduce": lambda: world.Allreduce(source, y, op),
            "reduce": lambda: world.Reduce(x, y, op, root),
            "broadcast": lambda: world.Bcast(x, root),
            "allgather": lambda: world.Allgather(x, y),
            "reducescatter": lambda: world.Reduce_scatter_block(x, y, op),
            "alltoall": lambda: world.Alltoall(x, y),
            "barrier": lambda: world.Barrier(),
            "scan": lambda: world.Scan(x, y, op),
            "exscan": lambda: world.Exscan(x, y, op),
        }
        call = calls[self.collective]
        if self.op != "average" or self.collective not in REDUCING or logical:
            return call
        divide = np.true_divide if self.dtype.kind == "f" else np.floor_divide

        def averaged() -> None:  # MPI has no average, so a user would divide too
            call()
            divide(y, self.size, out=y)

        return averaged
