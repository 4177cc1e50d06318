"""Reduces lists of gradients for tapes and optimizers of any framework, in as few operations as possible.

A binding subclasses :class:`GradientReduction`, and implements the reduction of its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ringcomm._src.base.ops import Average, Sum, core_op
from ringcomm._src.base.wire_formats import Auto, WireFormat
from ringcomm._src.compression.compression import NoneCompressor, compressed, parts_of, resolved
from ringcomm._src.named.build import split_list
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.bucket_limits import bucket_limits, decided
from ringcomm._src.training.replicas import CountedCheck, every


def unnumbered(name: str) -> str:
    """Removes the numbers by which frameworks make names unique ("dense_1/kernel"): ranks may count differently."""
    return re.sub(r"_\d+(?=[_/:]|$)", "", name)


def named_as(index: int, variable: Any) -> str:
    called = getattr(variable, "path", None) or getattr(variable, "name", None) if variable is not None else None
    return f"{index}.{unnumbered(called)}" if called else str(index)


def names_of(variables: Sequence[Any]) -> list[str]:
    return [getattr(one, "path", None) or getattr(one, "name", None) or str(i) for i, one in enumerate(variables)]


@dataclass
class GradientReduction:
    """The common arguments of tapes and optimizers. Calling it with gradients returns the reduced gradients."""

    name: str
    op: Any = Average
    compression: Any = NoneCompressor
    sparse_as_dense: bool = False
    predivide: float = 1.0
    num_groups: int = 0
    groups: Any = None  # None, a number, or a list of lists of variables
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    algorithm: str | None = None
    factor: float = 1.0  # factor of the results
    local: set[Any] = field(default_factory=set)  # references to variables with gradients that are not reduced
    kept: dict[str, Any] = field(default_factory=dict, repr=False)  # residuals by name, if no graph operation has them
    applying: bool = False  # reduced gradients are being applied: see `once`

    def __post_init__(self) -> None:
        self.op = core_op(self.op)
        if self.predivide != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor needs op=Average")
        if self.num_groups and self.groups is None:
            self.groups = self.num_groups
        valid_number = isinstance(self.groups, int) and self.groups > 0
        if self.groups is not None and not valid_number and not isinstance(self.groups, list):
            raise ValueError("groups must be a positive number, or a list of lists of variables")
        self.compression = resolved(self.compression)
        if isinstance(self.compression, WireFormat):
            self._check_format(self.compression)
        self.process_set.session()  # raises for a set that is not in use

    def _check_format(self, wire: WireFormat) -> None:
        if self.op not in (Average, Sum):
            raise ValueError(f"compression={wire}: only sums and averages can travel so, not {self.op}")
        if wire.of_gradients and not isinstance(wire, Auto):
            raise ValueError(f"compression={wire} is for ringcomm.torch's DistributedOptimizer")

    # ---- methods of a binding ----------------------------------------------------------------------------------------
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        """Reduces the dense gradients of one group."""
        wire, compressor = parts_of(compression)
        how, algorithm = self.how_to(wire)
        given = [self.as_dense(one) for one in gradients]
        return compressed(compressor, given, lambda sent: self.allreduce(sent, names, how, algorithm))

    def allreduce(self, gradients: list[Any], names: list[str], how: Reduce, algorithm: str | None) -> list[Any]:
        """Reduces dense gradients in one operation."""
        raise NotImplementedError

    def gather_sparse(self, gradients: list[Any], names: list[str]) -> list[Any]:
        """Reduces sparse gradients (:meth:`is_sparse`) by gathering them."""
        raise NotImplementedError

    def is_sparse(self, gradient: Any) -> bool:
        return False

    def as_dense(self, gradient: Any) -> Any:
        return gradient

    def is_variable(self, variable: Any) -> bool:
        return variable is not None

    def look(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Compares the variables, if a comparison is due, before these gradients are reduced. Returns the gradients.

        During tracing, it adds the comparison to the program instead.
        """
        raise NotImplementedError

    def nothing_for(self, variable: Any) -> Any:
        """Returns a gradient without elements, or None if the variable or its framework does not support that."""
        return None

    def scaled(self, gradient: Any, factor: float) -> Any:
        """Multiplies a dense or a sparse gradient."""
        return gradient * factor

    def reference(self, variable: Any) -> Any:
        """Returns a hashable value that identifies the variable."""
        return id(variable)

    @staticmethod
    def is_in_a_graph(variable: Any) -> bool:
        """Returns True if a traced function that still exists uses the variable."""
        return False

    # ---- shared by all bindings --------------------------------------------------------------------------------------
    @contextmanager
    def once(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Iterator[list[Any]]:
        """Yields the reduced gradients. A nested call yields its gradients unchanged.

        An optimizer and the optimizer inside it share this reduction, and the outer one reduces.
        """
        if self.applying:
            yield list(gradients)
            return
        reduced = self(gradients, variables)
        self.applying = True
        try:
            yield reduced
        finally:
            self.applying = False

    def for_copy(self, name: str) -> GradientReduction:
        """Returns the same reduction, without its state, for a copy of the optimizer."""
        return replace(self, name=name, local=set(self.local), kept={}, applying=False)

    def keep_local(self, variable: Any) -> None:
        self.local.add(self.reference(variable))

    def keep_layers_local(self, layers: Any) -> None:
        """Keeps the gradients of layers on their rank. `layers`: a Keras layer, an iterable of layers, or None."""
        for layer in layers if isinstance(layers, Iterable) else [layers] if layers else []:
            for variable in layer.trainable_weights:
                self.keep_local(variable)

    @property
    def together(self) -> bool:
        """True if the process set includes this rank and at least one other rank."""
        return bool(self.process_set.included()) and self.process_set.size() > 1

    def factors(self) -> tuple[float, float]:
        """Returns the factors (before, after) the reduction."""
        return 1.0 / self.predivide, self.predivide * self.factor

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients. Gradients that are None must be None on all ranks, and remain None.

        `variables`: a variable for each gradient, or an empty sequence.
        """
        results = list(gradients)
        if not self.together:
            return [one if one is None or self.factor == 1 else self.scaled(one, self.factor) for one in results]
        named: list[Any] = list(variables) or [None] * len(results)
        missing = self._fill(results, named)
        shared = [i for i, one in enumerate(results) if one is not None and not self._is_local(named[i])]
        self._scale_local(results, named)
        compared = self._compared([results[i] for i in shared], [one for one in named if not self._is_local(one)])
        for i, one in zip(shared, compared, strict=True):
            results[i] = one
        if self.sparse_as_dense:
            for i in shared:
                results[i] = self.as_dense(results[i])
        sparse = [i for i in shared if self.is_sparse(results[i])]
        dense = [i for i in shared if not self.is_sparse(results[i])]
        parts = [part for group in self._groups(dense, named) for part in self._formats(group, results)]
        reductions: list[tuple[Callable[..., list[Any]], list[int]]] = [
            (partial(self.reduce_dense, compression=compression), group) for compression, group in parts
        ]
        for reduce, group in [*reductions, *([(self.gather_sparse, sparse)] if sparse else [])]:
            names = [f"{self.name}.{named_as(i, named[i])}" for i in group]
            for i, one in zip(group, reduce([results[i] for i in group], names), strict=True):
                results[i] = one
        for i in missing:
            results[i] = None
        return results

    def _compared(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients, after a comparison of the variables' replicas if one is due."""
        watched = [one for one in variables if self.is_variable(one)]
        steps = every(self.process_set) if watched and gradients else 0
        if not steps:
            return gradients
        name = f"{self.name}.{named_as(0, watched[0])}.{len(watched)}"
        check = CountedCheck(self.process_set, name, f"the optimizer {self.name!r}", steps)
        return self.look(check, gradients, watched)

    def _fill(self, results: list[Any], variables: Sequence[Any]) -> list[int]:
        """Replaces missing gradients by empty ones, and returns their indices.

        If another rank has a gradient at such an index, all ranks get a MismatchError that names the variable.
        """
        missing = [i for i, one in enumerate(results) if one is None and not self._is_local(variables[i])]
        for i in missing:
            results[i] = self.nothing_for(variables[i])
        return missing

    def _formats(self, group: list[int], gradients: Sequence[Any]) -> Iterator[tuple[Any, list[int]]]:
        """Yields (compression, indices): gradients that the wire format does not compress are a separate part."""
        wire = self.compression
        if isinstance(wire, Auto):
            wire = decided(wire, self.process_set, bucket_limits().bytes) or NoneCompressor
        if not isinstance(wire, WireFormat):
            yield wire, group
            return
        fitting = {i for i in group if wire.fits(tuple(n or 0 for n in gradients[i].shape))}
        for compression, part in ((wire, fitting), (NoneCompressor, set(group) - fitting)):
            if part:
                yield compression, sorted(part)

    def how_to(self, wire: Any) -> tuple[Reduce, str | None]:
        """Returns the parameters of the reduction of gradients in a wire format, and the algorithm."""
        everywhere = isinstance(wire, WireFormat) and wire.everywhere
        how = Reduce(self.op, *self.factors(), wire, keeps=True)
        return how, self.algorithm or ("round_robin" if everywhere else None)

    def _is_local(self, variable: Any) -> bool:
        return bool(self.local) and variable is not None and self.reference(variable) in self.local

    def _scale_local(self, results: list[Any], variables: Sequence[Any]) -> None:
        if not self.scale_local_gradients:
            return
        for i, variable in enumerate(variables):
            if results[i] is not None and self._is_local(variable):
                results[i] = self.scaled(results[i], 1.0 / self.process_set.size())

    def _groups(self, indices: list[int], variables: Sequence[Any]) -> list[list[int]]:
        """Returns the groups of gradients. By default there is one group: the engine fuses gradients in any case."""
        if not indices:
            return []
        if self.groups is None:
            return [indices]
        if isinstance(self.groups, int):
            return [part for part in split_list(indices, self.groups) if part]
        number = {self.reference(one): n for n, group in enumerate(self.groups) for one in group}
        parts: dict[int, list[int]] = {}
        for i in indices:
            parts.setdefault(number.get(self.reference(variables[i]), -1), []).append(i)
        return [parts[n] for n in sorted(parts)]
