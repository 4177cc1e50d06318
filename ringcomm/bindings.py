"""The interface for bindings of other frameworks; docs/writing-a-binding.md shows an example.

It has two parts. A :class:`Kind` describes where the memory of a framework's arrays is. Once it is
registered, every function of ringcomm takes and returns these arrays. A *graph operation* is one
collective of a graph that is built once and run often. Call :func:`make_graph_op` when the graph is
built, and :func:`run_graph_op` (or the functions for C) at every run.
"""

from ringcomm._src.arrays.arrays import register_kind
from ringcomm._src.arrays.buffers import Buffer, Kind
from ringcomm._src.arrays.numpy_kind import NumPyKind
from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from ringcomm._src.core._core import GraphOp, graph_op_functions
from ringcomm._src.named.graph_ops import Description, Reduce
from ringcomm._src.named.graph_ops import make as make_graph_op
from ringcomm._src.named.graph_ops import run as run_graph_op

__all__ = [
    "ALLGATHER",
    "ALLREDUCE",
    "ALLTOALL",
    "BROADCAST",
    "REDUCESCATTER",
    "Buffer",
    "Description",
    "GraphOp",
    "Kind",
    "NumPyKind",
    "Reduce",
    "graph_op_functions",
    "make_graph_op",
    "register_kind",
    "run_graph_op",
]
