"""Reduces lists of gradients for tapes and optimizers of any framework, in few operations.

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
from ringcomm._src.compression.compression import NoneCompressor, parts_of, reduce_compressed, resolved
from ringcomm._src.named.build import split_list
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.bucket_limits import Limits, resolve_auto
from ringcomm._src.training.replicas import CountedCheck, every


def unnumbered(name: str) -> str:
    """Removes numbers that make names unique ("dense_1/kernel"); they may differ between ranks."""
    return re.sub(r"_\d+(?=[_/:]|$)", "", name)


def operation_name(index: int, variable: Any) -> str:
    called = getattr(variable, "path", None) or getattr(variable, "name", None) if variable is not None else None
    return f"{index}.{unnumbered(called)}" if called else str(index)


def names_of(variables: Sequence[Any]) -> list[str]:
    return [
        getattr(variable, "path", None) or getattr(variable, "name", None) or str(i)
        for i, variable in enumerate(variables)
    ]


@dataclass
class GradientReduction:
    """Arguments that tapes and optimizers have in common. Calling the object reduces gradients."""

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
    factor: float = 1.0  # factor that multiplies the results
    local: set[Any] = field(default_factory=set)  # references to variables with gradients that are not reduced
    kept: dict[str, Any] = field(default_factory=dict, repr=False)  # residuals by name, if no graph operation has them
    applying: bool = False  # reduced gradients are being applied: see `reduced_once`

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
            raise ValueError(f"compression={wire} supports sums and averages, not op={self.op.name}")
        if wire.of_gradients and not isinstance(wire, Auto):
            raise ValueError(f"compression={wire} is supported by ringcomm.torch.DistributedOptimizer only")

    # ---- methods of a binding ----------------------------------------------------------------------------------------
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        """Reduces the dense gradients of one group."""
        wire, compressor = parts_of(compression)
        how, algorithm = self.reduction_for(wire)
        given = [self.as_dense(gradient) for gradient in gradients]
        return reduce_compressed(compressor, given, lambda sent: self.allreduce(sent, names, how, algorithm))

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

    def compare_replicas(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Compares the variables if a comparison is due. Returns the gradients.

        During tracing, it adds the comparison to the program instead.
        """
        raise NotImplementedError

    def empty_gradient(self, variable: Any) -> Any:
        """Returns a gradient without elements, or None if that is not supported."""
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
    def reduced_once(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Iterator[list[Any]]:
        """Yields the reduced gradients. A nested call yields its gradients unchanged.

        An optimizer and the optimizer that it wraps share this object. Only the outer call reduces.
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
        """Excludes the gradients of a Keras layer, or an iterable of layers, from the reduction."""
        for layer in layers if isinstance(layers, Iterable) else [layers] if layers else []:
            for variable in layer.trainable_weights:
                self.keep_local(variable)

    @property
    def together(self) -> bool:
        """True if the process set includes this rank and at least one other rank."""
        return bool(self.process_set.included()) and self.process_set.size() > 1

    def factors(self) -> tuple[float, float]:
        """Returns the factors that multiply gradients: (before, after) the reduction."""
        return 1.0 / self.predivide, self.predivide * self.factor

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients. A gradient that is None must be None on all ranks.

        `variables`: a variable for each gradient, or an empty sequence.
        """
        results = list(gradients)
        if not self.together:
            return [
                gradient if gradient is None or self.factor == 1 else self.scaled(gradient, self.factor)
                for gradient in results
            ]
        named: list[Any] = list(variables) or [None] * len(results)
        missing = self._fill(results, named)
        shared = [i for i, gradient in enumerate(results) if gradient is not None and not self._is_local(named[i])]
        self._scale_local(results, named)
        compared = self._compared(
            [results[i] for i in shared], [variable for variable in named if not self._is_local(variable)]
        )
        for i, gradient in zip(shared, compared, strict=True):
            results[i] = gradient
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
            names = [f"{self.name}.{operation_name(i, named[i])}" for i in group]
            for i, gradient in zip(group, reduce([results[i] for i in group], names), strict=True):
                results[i] = gradient
        for i in missing:
            results[i] = None
        return results

    def _compared(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients, after a comparison of the variables' replicas if one is due."""
        watched = [variable for variable in variables if self.is_variable(variable)]
        steps = every(self.process_set) if watched and gradients else 0
        if not steps:
            return gradients
        name = f"{self.name}.{operation_name(0, watched[0])}.{len(watched)}"
        check = CountedCheck(self.process_set, name, f"the optimizer {self.name!r}", steps)
        return self.compare_replicas(check, gradients, watched)

    def _fill(self, results: list[Any], variables: Sequence[Any]) -> list[int]:
        """Replaces missing gradients by empty ones, and returns their indices.

        If another rank has a gradient where this rank has none, all ranks get a MismatchError that
        names the variable.
        """
        missing = [i for i, gradient in enumerate(results) if gradient is None and not self._is_local(variables[i])]
        for i in missing:
            results[i] = self.empty_gradient(variables[i])
        return missing

    def _formats(self, group: list[int], gradients: Sequence[Any]) -> Iterator[tuple[Any, list[int]]]:
        """Yields (compression, indices). Gradients that do not fit the format are not compressed."""
        wire = self.compression
        if isinstance(wire, Auto):
            largest = min(Limits.bytes, self.process_set.session().config.fusion_bytes or 1)
            wire = resolve_auto(wire, self.process_set, largest) or NoneCompressor
        if not isinstance(wire, WireFormat):
            yield wire, group
            return
        fitting = {i for i in group if wire.fits(tuple(n or 0 for n in gradients[i].shape))}
        for compression, part in ((wire, fitting), (NoneCompressor, set(group) - fitting)):
            if part:
                yield compression, sorted(part)

    def reduction_for(self, wire: Any) -> tuple[Reduce, str | None]:
        """Returns the parameters and algorithm for the reduction of gradients in a wire format."""
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
        """Returns the groups of gradients; by default one, because the engine fuses gradients."""
        if not indices:
            return []
        if self.groups is None:
            return [indices]
        if isinstance(self.groups, int):
            return [part for part in split_list(indices, self.groups) if part]
        number = {self.reference(variable): n for n, group in enumerate(self.groups) for variable in group}
        parts: dict[int, list[int]] = {}
        for i in indices:
            parts.setdefault(number.get(self.reference(variables[i]), -1), []).append(i)
        return [parts[n] for n in sorted(parts)]
