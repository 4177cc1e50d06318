"""The reductions, and their checks."""

from __future__ import annotations

import enum
import warnings
from typing import Any

from ringcomm import _core

FLOATING = frozenset(_core.DTYPES.index(name) for name in ("float16", "bfloat16", "float32", "float64"))


class Op(enum.IntEnum):
    """How values of several ranks become one. Booleans are logical: sum and max are *or*, product and min are *and*.

    ``Adasum`` is for gradients, and for allreduce of floating arrays only: an array is one vector; orthogonal vectors
    are added and parallel ones averaged, two ranks at a time (Maleki et al., arXiv:2006.02924). The numbers are
    Horovod's.
    """

    Average = _core.OPS.index("average")  # 0
    Sum = _core.OPS.index("sum")
    Adasum = _core.OPS.index("adasum")
    Min = _core.OPS.index("min")
    Max = _core.OPS.index("max")
    Product = _core.OPS.index("product")  # 5


Average = Op.Average
Sum = Op.Sum
Min = Op.Min
Max = Op.Max
Product = Op.Product
Adasum = Op.Adasum


def as_op(op: Any) -> Op:
    """Raises ValueError naming the known operations."""
    try:
        return Op(op)
    except ValueError:
        raise ValueError(f"unknown reduction {op!r}; use ringcomm.{', ringcomm.'.join(Op.__members__)}") from None


def chosen_op(op: Any, average: bool | None) -> Op:
    """Horovod's rule: `op`, or what the deprecated `average` says, or Average. Raises ValueError if both are given."""
    if average is not None:
        if op is not None:
            raise ValueError("give op or the deprecated average, not both")
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else as_op(op)


def wire_code(wire: Any, dtype: int | None = None) -> int:
    """The core's code of what elements travel as; 0: as they are.

    Args:
        wire: None, a format's name (``_core.wire_formats()``), a dtype, which is the format of its name, or a
            compressor whose ``wire`` is one of these.
        dtype: the elements', by its index; None if there will be several. Elements that the format does not shorten
            travel as they are.

    Raises:
        ValueError: there is no such format; the message names those that there are.
    """
    wire = getattr(wire, "wire", wire)
    if wire is None:
        return 0
    name = wire if isinstance(wire, str) else getattr(wire, "name", None) or str(wire).removeprefix("torch.")
    if name not in _core.wire_formats():
        raise ValueError(f"there is no wire format {wire!r}; known: {', '.join(_core.wire_formats())}")
    return _core.wire_code(name) if dtype is None or _core.wire_ratio(name, dtype) < 1 else 0
