"""The reduction ops, user ops, and conversions from names, numbers and mpi4py's ops.

It also converts wire format arguments to the core's codes.
"""

from __future__ import annotations

import enum
import itertools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.core import _core

__all__ = [
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAXLOC",
    "MINLOC",
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Op",
    "Product",
    "Sum",
]

FLOATING = frozenset(_core.DTYPES.index(name) for name in ("float16", "bfloat16", "float32", "float64"))
NUMBERS = _core.DTYPES[: _core.DTYPES.index("bool") + 1]  # dtypes that have every op from Average to Product


class Op(enum.IntEnum):
    """Reduction ops, which combine the values of several ranks into one.

    ======================= ================================ =====================================
    Op                      dtypes                           result
    ======================= ================================ =====================================
    Sum, Product, Average   floating, integer, bool, complex averages of integers round toward 0
    Min, Max                floating, integer, bool          a NaN wins; -0 is below +0
    BAND, BOR, BXOR         integer, bool                    bit by bit
    LAND, LOR, LXOR         integer, bool                    0 or 1; nonzero numbers are true
    MINLOC, MAXLOC          pairs (value, index)             the pair with the extreme value
    Adasum                  floating                         see below
    :meth:`create`          every dtype that can be sent     that of the function
    ======================= ================================ =====================================

    Booleans are logical: sum and max are *or*, product and min are *and*, as in NumPy. The ops from
    Average to Product, except Adasum, take prescale and postscale factors. Every argument ``op``
    also accepts a name (``"sum"``, ``"band"``, ``"prod"``) or mpi4py's op (``MPI.SUM``). The
    numeric values up to Product are Horovod's.

    A pair is a structured dtype of a value (int16 to int64, float32, float64) and an index (int32,
    int64). It has C's struct layout, as MPI's ``FLOAT_INT``: ``np.dtype([("value", "f4"), ("index",
    "i4")], align=True)``. If values are equal, the lower index wins; a NaN wins against all values.

    ``Adasum`` is for gradients: for allreduce of floating arrays only. It treats an array as one
    vector and combines two ranks at a time. Orthogonal vectors are added, parallel vectors are
    averaged. Source: Maleki et al., arXiv:2006.02924.

    Examples
    --------
    >>> comm.allreduce(np.array([rank]), op=ringcomm.Max).tolist()
    [1]
    >>> comm.allreduce(np.array([rank]), op="average").tolist()  # 0.5, rounded toward 0
    [0]
    """

    Average = _core.OPS.index("average")  # 0
    Sum = _core.OPS.index("sum")
    Adasum = _core.OPS.index("adasum")
    Min = _core.OPS.index("min")
    Max = _core.OPS.index("max")
    Product = _core.OPS.index("product")  # 5
    BAND = _core.OPS.index("band")
    BOR = _core.OPS.index("bor")
    BXOR = _core.OPS.index("bxor")
    LAND = _core.OPS.index("land")
    LOR = _core.OPS.index("lor")
    LXOR = _core.OPS.index("lxor")
    MINLOC = _core.OPS.index("minloc")
    MAXLOC = _core.OPS.index("maxloc")

    @property
    def scaled(self) -> bool:
        """True if the op takes prescale and postscale factors."""
        return self <= Op.Product

    @staticmethod
    def create(function: Callable[[Any, Any], Any], commutative: bool = True) -> UserOp:
        """Creates a user-defined op for a communicator's reductions, as ``MPI_Op_create`` does.

        Parameters
        ----------
        function : Callable[[Any, Any], Any]
            Called as ``function(invec, inoutvec)`` with two one-dimensional NumPy arrays of equal
            length and of the callers' dtype. It writes ``invec op inoutvec``, element by element,
            to ``inoutvec``. It must be associative, and give identical results on all ranks. The
            arrays may be parts of the ranks' arrays. The function runs on the calling thread (in
            ``wait()`` for a non-blocking call), and may raise.
        commutative : bool
            As in MPI; default True. Operands are combined in rank order in both cases (MPI 4.1,
            section 6.9.5).

        Returns
        -------
        UserOp
            A value for the argument ``op`` of a :class:`ringcomm.Communicator`'s reductions.

        Examples
        --------
        >>> def larger_magnitude(invec, inoutvec):
        ...     np.copyto(inoutvec, invec, where=abs(invec) > abs(inoutvec))
        >>> op = ringcomm.Op.create(larger_magnitude)
        >>> comm.allreduce(np.array([-2.0, 1.0]) * rank, op=op).tolist()
        [-2.0, 1.0]
        """
        return UserOp(function, commutative)


@dataclass(frozen=True)
class UserOp:
    """A user-defined op, which :meth:`Op.create` returns."""

    function: Callable[[Any, Any], Any]
    commutative: bool = True

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


Average = Op.Average
Sum = Op.Sum
Min = Op.Min
Max = Op.Max
Product = Op.Product
Adasum = Op.Adasum
BAND, BOR, BXOR = Op.BAND, Op.BOR, Op.BXOR
LAND, LOR, LXOR = Op.LAND, Op.LOR, Op.LXOR
MINLOC, MAXLOC = Op.MINLOC, Op.MAXLOC

_names = {op.name.lower(): op for op in Op} | {"prod": Product, "mean": Average}


def as_op(op: Any) -> Op | UserOp:
    """Returns the op for an op, a number, a name, mpi4py's op, or a result of Op.create.

    Raises ValueError, which lists the known ops, for any other value.
    """
    if isinstance(op, Op | UserOp):
        return op
    try:
        if isinstance(op, str):
            return _names[op.lower()]
        return _of_mpi(op) if type(op).__module__ == "mpi4py.MPI" else Op(op)
    except (KeyError, ValueError):
        raise ValueError(f"unknown reduction {op!r}; use ringcomm.{', ringcomm.'.join(Op.__members__)}") from None


def _of_mpi(op: Any) -> Op | UserOp:
    MPI: Any = sys.modules["mpi4py.MPI"]
    if not op.is_predefined:
        return UserOp(op.Reduce_local, op.Is_commutative())
    for name in ("SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MINLOC", "MAXLOC"):
        if op == getattr(MPI, name):
            return _names[name.lower()]
    raise ValueError


def core_op(op: Any) -> Op:
    """Converts as `as_op` does. Raises ValueError for a user op: only communicators run these."""
    op = as_op(op)
    if isinstance(op, UserOp):
        raise ValueError(f"the user-defined op {op.name} works in calls of a ringcomm.Communicator only")
    return op


def chosen_op(op: Any, average: bool | None) -> Op:
    """Returns Horovod's choice: `op`, else the op of the deprecated `average`, else Average.

    Raises ValueError if both are given.

    Examples
    --------
    >>> hvd.handle_average_backwards_compatibility(hvd.Sum, None).name
    'Sum'
    """
    if average is not None:
        if op is not None:
            raise ValueError("give op or the deprecated average, not both")
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else core_op(op)


_wire_numbers: dict[Any, int] = {}  # by wire format
_next_wire_number = itertools.count(1)
_MAX_WIRE_NUMBERS = 256  # bounds the table: a program may make a new format for each call


def wire_number(wire: Any) -> int:
    """Returns a number that identifies `wire` in cache keys, faster than `wire_code` does.

    Equal formats have the same number, unless the program uses more than `_MAX_WIRE_NUMBERS`
    formats: the table is then cleared.
    """
    wire = getattr(wire, "wire", wire)
    try:
        return _wire_numbers[wire]
    except KeyError:
        if len(_wire_numbers) >= _MAX_WIRE_NUMBERS:
            _wire_numbers.clear()
        return _wire_numbers.setdefault(wire, next(_next_wire_number))
    except TypeError:  # `wire` is not hashable
        return next(_next_wire_number)


def wire_code(wire: Any, dtype: int | None = None) -> int:
    """Returns the core's code of a wire format; 0 if elements are sent unchanged.

    Parameters
    ----------
    wire
        None: unchanged elements. The name of a format (``_core.wire_formats()`` lists the names).
        A format with its parameters (``Compression.topk(0.1)``). A dtype: the format of the same
        name. A compressor whose attribute ``wire`` is one of these values.
    dtype : int | None
        Index of the elements' dtype; None if the dtype is not known yet. Elements that the format
        does not shorten are sent unchanged.

    Raises
    ------
    ValueError
        The format is unknown; the message lists the known formats.
    """
    wire = getattr(wire, "wire", wire)
    if wire is None:
        return 0
    if isinstance(wire, WireFormat):
        if wire.of_gradients:
            raise ValueError(
                f"{wire} is for the gradients of DistributedOptimizer (PyTorch), not for single operations"
            )
        return wire.code if dtype is None or _core.wire_ratio(wire.code, dtype) < 1 else 0
    name = wire if isinstance(wire, str) else getattr(wire, "name", None) or getattr(wire, "__name__", None)
    name = name or str(wire).removeprefix("torch.")
    if name not in _core.wire_formats():
        raise ValueError(f"there is no wire format {wire!r}; known: {', '.join(_core.wire_formats())}")
    code = _core.wire_code(name)
    return code if dtype is None or _core.wire_ratio(code, dtype) < 1 else 0
