"""The JAX primitive behind every collective of this binding.

Its operands are arrays; its parameter is an `Operation`. ``library.py`` runs it, in eager mode and
in programs (functions that JAX has traced and compiled). ``derivatives.py`` has its rules for
``jvp``, transposition and ``vmap``. With these, all transformations of JAX compose.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax._src import effects
from jax.core import ShapedArray
from jax.extend.core import Primitive

from ringcomm._src.arrays.rows import even_part
from ringcomm._src.base.ops import Average, Sum
from ringcomm._src.calls import calls
from ringcomm._src.named import graph_ops
from ringcomm._src.named.graph_ops import PLAIN, Description, Reduce
from ringcomm._src.named.process_sets import ProcessSet


class Communicates(effects.Effect):
    """The effect of a program that communicates.

    It is ordered: XLA runs a program's collectives in the program's order, so that ranks cannot
    deadlock. XLA also keeps collectives with unused results.
    """

    def __repr__(self) -> str:  # part of JAX's message when it refuses a program
        return (
            "collectives of ringcomm (a rank's program must run on one device: start one rank for each device, and "
            "keep collectives out of programs that are sharded over several devices)"
        )


EFFECT = Communicates()
for _allowed in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(Communicates)

_numbers = itertools.count()


class Operation(NamedTuple):
    """One call of a collective, with everything that is known when it is traced."""

    process_set: ProcessSet
    collective: int
    names: tuple[str, ...] | None = None  # one for each operand; None: made when the call runs or is compiled
    how: Reduce = PLAIN
    root: int = 0  # index in the process set
    algorithm: str | None = None
    rows: tuple[int, ...] | None = None  # allgather: rows of each rank; alltoall: rows from each; None: as on this rank
    sends: tuple[int, ...] | None = None  # alltoall: rows to each rank, if uneven
    even: bool = False  # every rank must give the same number of rows
    agrees: bool = False  # compares branches of a conditional: the program fails if ranks take different ones
    look: Any = None  # function to call on the operands, without a collective (training/replicas.py)
    every: int = 0  # number of runs between two calls of `look`
    number: int = 0  # distinguishes calls, so that each has its own name in a program

    def __repr__(self) -> str:
        kind = graph_ops.kind_of(self.collective)
        return f"{kind} {', '.join(self.names or ())}".strip()

    @property
    def linear(self) -> bool:
        reduces = self.collective in (calls.ALLREDUCE, calls.REDUCESCATTER)
        return not reduces or self.how.op in (Average, Sum)

    def description(self, names: Sequence[str], arrays: Sequence[Any], even: bool) -> Description:
        """Returns the description for the core. `arrays` are any objects with a dtype."""
        return Description(
            process_set=self.process_set,
            collective=self.collective,
            names=tuple(names),
            dtypes=tuple(array.dtype.name for array in arrays),
            how=self.how,
            root=self.root,
            algorithm=self.algorithm,
            splits=self.sends is not None,
            even=self.even or (even and self.rows is None),
            look=self.look,
            every=self.every,
        )

    def derived(self, suffix: str, indices: Sequence[int] | None = None, **changes: Any) -> Operation:
        """Returns an operation for a derivative, with a new name, on all operands or on `indices`."""
        names = self.names
        if names is not None:
            names = tuple(names[i].removesuffix(".tangent") + suffix for i in (indices or range(len(names))))
        return self._replace(names=names, **changes)

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the result for an operand of this shape."""
        size = self.process_set.size()
        if self.collective == calls.ALLGATHER:
            return sum(self.rows or [shape[0]] * size), *shape[1:]
        if self.collective == calls.REDUCESCATTER:
            return even_part(shape[0], size, self.process_set.require_rank()), *shape[1:]
        if self.collective == calls.ALLTOALL and self.rows is not None:
            return sum(self.rows), *shape[1:]
        return shape


collective_p = Primitive("ringcomm")
collective_p.multiple_results = True


def bind(operation: Operation, arrays: Sequence[Any]) -> list[Any]:
    """Runs the operation now, or adds it to the program that is being traced."""
    if not arrays:
        return []
    return list(collective_p.bind(*arrays, operation=operation._replace(number=next(_numbers))))


def _abstract(*arrays: Any, operation: Operation) -> Any:
    graph_ops.check(operation.description((), arrays, True))
    if operation.look is not None:
        return [ShapedArray((1,), np.uint8)], {EFFECT}
    return [ShapedArray(operation.result(array.shape), array.dtype) for array in arrays], {EFFECT}


collective_p.def_effectful_abstract_eval(_abstract)
