"""A binding of a toy framework by both interfaces of ringcomm.bindings (docs/writing-a-binding.md).

ringrun -np 2 python examples/toy_binding.py
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ringcomm
from ringcomm import bindings


# ---- the framework ---------------------------------------------------------------------------------------------------
class Tensor:
    """A row of float32 numbers, in memory of any kind."""

    def __init__(self, memory: Any) -> None:
        self.memory = memoryview(memory)

    def __repr__(self) -> str:
        return f"Tensor({self.memory.tolist()})"


class Graph:
    """A list of functions, each of which uses earlier results. It is built once and run often."""

    def __init__(self) -> None:
        self.functions: list[tuple[Callable[..., Any], Sequence[int]]] = []

    def add(self, function: Callable[..., Any], *inputs: int) -> int:
        """Returns the number of the new function's result."""
        self.functions.append((function, inputs))
        return len(self.functions) - 1

    def run(self) -> Any:
        """Returns the last function's result."""
        results: list[Any] = []
        for function, inputs in self.functions:
            results.append(function(*(results[number] for number in inputs)))
        return results[-1]


# ---- the first interface: ringcomm's functions take tensors ----------------------------------------------------------
class TensorKind(bindings.NumPyKind):
    """The kind of toy tensors: a NumPyKind, as NumPy can view their memory."""

    @staticmethod
    def source(x: Tensor) -> bindings.Buffer:
        return bindings.NumPyKind.source(np.asarray(x.memory))._replace(kind=TensorKind)

    @staticmethod
    def target(x: Tensor) -> bindings.Buffer:
        return bindings.NumPyKind.target(np.asarray(x.memory))._replace(kind=TensorKind, given=x)

    @staticmethod
    def describe(array: Any) -> bindings.Buffer:
        return bindings.NumPyKind.describe(array)._replace(kind=TensorKind, given=Tensor(array))

    @staticmethod
    def like(x: Tensor) -> None:
        return None  # no cache key: every tensor is inspected again


bindings.register_kind(lambda cls: issubclass(cls, Tensor), TensorKind)


def average_gradients(gradients: dict[str, Tensor]) -> None:
    """Averages gradients in place. All operations are in flight; ringcomm fuses small ones."""
    handles = [ringcomm.allreduce_async_(gradient, name=name) for name, gradient in gradients.items()]
    for handle in handles:
        handle.wait()


# ---- the second interface: a graph's own operation -------------------------------------------------------------------
def allreduce(graph: Graph, x: int, name: str) -> int:
    """Adds the average over all ranks of the result number `x`."""
    how = bindings.Reduce(ringcomm.Average)
    what = bindings.Description(ringcomm.global_process_set, bindings.ALLREDUCE, (name,), ("float32",), how)
    graph_op = bindings.make_graph_op(what)  # refuses unsupported operations while the graph is built
    return graph.add(lambda tensor: Tensor(bindings.run_graph_op(graph_op, [tensor.memory])[0]), x)


if __name__ == "__main__":
    ringcomm.init()
    rank = ringcomm.rank()
    gradients = {"weight": Tensor(array("f", [rank, rank + 1])), "bias": Tensor(array("f", [10 * rank]))}
    average_gradients(gradients)
    batches = iter(Tensor(array("f", [rank + step])) for step in range(3))
    graph = Graph()
    allreduce(graph, graph.add(lambda: next(batches)), "loss")
    losses = [graph.run() for _ in range(3)]
    if rank == 0:
        print(f"gradients: {gradients}\nlosses: {losses}")
