"""Execution of the collective primitive by JAX, in eager mode and in compiled programs.

A compiled program calls a handler of XLA's foreign function interface (_op_library.c). If the
handler is not usable, the program calls Python through a callback. This module also orders
collectives between programs and in conditionals.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core
from jax._src.dispatch import RuntimeTokenSet, runtime_tokens
from jax._src.interpreters.pxla import MeshExecutable
from jax._src.lax.control_flow import conditionals
from jax.interpreters import mlir

from ringcomm._src.base.errors import MismatchError
from ringcomm._src.base.ops import Max
from ringcomm._src.calls.calls import ALLREDUCE, ALLTOALL, BROADCAST
from ringcomm._src.core import _core
from ringcomm._src.jax.collective import EFFECT, Operation, bind, collective_p
from ringcomm._src.named import graph_ops, session
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet

logger = logging.getLogger("ringcomm")
LIBRARY = Path(__file__).with_name("_op_library.so")
TARGET = "ringcomm_run_graph_op"


@cache
def has_handler() -> bool:
    """Registers the handler with XLA. Logs one warning and returns False if that fails."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        if not library.ringcomm_connect(ctypes.c_void_p(_core.graph_op_functions())):
            raise OSError(f"{LIBRARY} belongs to another version of ringcomm: reinstall ringcomm")
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.ringcomm_run_graph_op), platform="cpu")
    except (OSError, AttributeError, RuntimeError) as error:
        logger.warning(
            "the XLA handler of ringcomm cannot be loaded, so JAX's programs communicate by slower callbacks: %s", error
        )
        return False
    return True


# ---- eager mode ------------------------------------------------------------------------------------------------------
_eager = graph_ops.EagerGraphOps(lambda graph_op: graph_op)


def run_eagerly(*arrays: Any, operation: Operation) -> list[Any]:
    """Runs a collective in eager mode and blocks until it is done."""
    names = graph_ops.names(operation.process_set, operation.collective, operation.names, len(arrays), False)
    inputs = [np.asarray(array) for array in arrays]
    graph_op = _eager.get(operation.description(names, inputs, False))
    results = graph_ops.run(graph_op, inputs + _splits(operation))
    return [jnp.asarray(result) for result in results[: len(arrays)]]


def _splits(operation: Operation) -> list[Any]:
    return [] if operation.sends is None else [np.asarray(operation.sends, np.int32)]


# ---- compiled programs -----------------------------------------------------------------------------------------------
class _Calls:
    """A counter of the collective calls in one program. The program keeps it alive."""

    count = 0


def _names(context: Any, operation: Operation, operands: int) -> Sequence[str]:
    """Returns the names of a call's operations in a program.

    A nameless call is named by its program and its index among that program's calls, which is
    identical on all ranks. Line numbers are not used, since they may differ between ranks. A count
    over all programs may differ too, because a rank may compile a program more often.
    """
    keepalives = context.module_context.keepalives
    calls = next((entry for entry in keepalives if isinstance(entry, _Calls)), None)
    if calls is None:
        calls = _Calls()
        keepalives.append(calls)
    calls.count += 1
    program = str(context.module_context.module.operation.attributes["sym_name"]).strip('"')
    name = f"{program}.{calls.count - 1}"
    if operation.look is not None:
        return operation.names or ()
    if operation.names is None:  # contains no kind, so that different kinds at one index raise a MismatchError
        return [name] if operands == 1 else [f"{name}.{i}" for i in range(operands)]
    return [f"{graph_ops.kind_of(operation.collective)}.{name}" for name in operation.names]


def _lower(context: Any, *operands: Any, operation: Operation) -> Sequence[Any]:
    """Lowers a call to the handler or the callback.

    The call's inputs are the operands, the rows that an uneven alltoall sends, and the token that
    orders a program's collectives.
    """
    arrays, results = list(context.avals_in), list(context.avals_out)
    names = _names(context, operation, len(operands))
    graph_op = graph_ops.make(operation.description(names, arrays, True))
    splits = _splits(operation)
    inputs = [*operands, *(mlir.ir_constant(counts) for counts in splits)]
    arrays += [core.ShapedArray(counts.shape, counts.dtype) for counts in splits]
    results += [core.ShapedArray(counts.shape, counts.dtype) for counts in splits]
    token = context.tokens_in.get(EFFECT)
    if _runs_in_handler(context):
        keeps_memory = operation.collective in (ALLREDUCE, BROADCAST, ALLTOALL) and not splits and not operation.look
        in_place = {i: i for i in range(len(operands))} if keeps_memory else None
        token_context = context.replace(
            avals_in=[*arrays, core.abstract_token], avals_out=[*results, core.abstract_token]
        )
        rule = jax.ffi.ffi_lowering(TARGET, has_side_effect=True, operand_output_aliases=in_place)
        attributes = {
            "graph_op": np.int64(graph_op.id),
            "inputs": np.int64(len(inputs)),
            "agrees": np.int64(operation.agrees),
        }
        *outputs, token = rule(token_context, *inputs, token, **attributes)
    else:
        outputs, token, _ = mlir.emit_python_callback(
            context, _Callback(graph_op, operation), token, inputs, arrays, results, has_side_effect=True
        )
    context.set_tokens_out(mlir.TokenSet({EFFECT: token}))
    return list(outputs)[: len(context.avals_out)]


def _runs_in_handler(context: Any) -> bool:
    platforms = context.platforms or context.module_context.platforms
    return tuple(platforms) == ("cpu",) and has_handler()


class _Callback:
    """A callback that runs a graph operation in Python, on arrays that the program passes to it."""

    def __init__(self, graph_op: _core.GraphOp, operation: Operation) -> None:
        self.graph_op, self.operation = graph_op, operation

    def __call__(self, *arrays: Any) -> Any:
        results = graph_ops.run(self.graph_op, [np.asarray(array) for array in arrays])
        if self.operation.agrees and results[0][0] != -results[0][1]:
            raise MismatchError("ranks take different branches of a conditional that contains collectives")
        return tuple(results)


collective_p.def_impl(run_eagerly)
mlir.register_lowering(collective_p, _lower)


# ---- conditionals ----------------------------------------------------------------------------------------------------
def _lower_conditional(context: Any, index: Any, *operands: Any, branches: Any, **parameters: Any) -> Any:
    """Lowers a conditional. If its branches contain collectives, ranks first agree on the branch.

    Otherwise, the collectives of a rank that takes another branch could match collectives of the
    next step.
    """
    inner = context
    if EFFECT in frozenset().union(*(branch.effects for branch in branches)):
        for process_set in dict.fromkeys(
            operation.process_set for branch in branches for operation in _operations(branch.jaxpr)
        ):
            agreement_context = inner.replace(
                avals_in=context.avals_in[:1], avals_out=context.avals_in[:1], tokens_out=None
            )
            lower_agreement = mlir.lower_fun(
                lambda branch, members=process_set: _agree_on_branch(branch, members), multiple_results=False
            )
            (index,) = lower_agreement(agreement_context, index)
            inner = inner.replace(tokens_in=agreement_context.tokens_out, tokens_out=None)
    results = conditionals._cond_lowering(inner, index, *operands, branches=branches, **parameters)
    if inner is not context:
        context.set_tokens_out(inner.tokens_out)
    return results


def _agree_on_branch(branch: Any, process_set: ProcessSet) -> Any:
    operation = Operation(process_set, ALLREDUCE, how=Reduce(Max), agrees=True)
    (extremes,) = bind(operation, [jnp.stack([branch, -branch])])
    return extremes[0]


def _operations(jaxpr: Any) -> Iterator[Operation]:
    for equation in jaxpr.eqns:
        if equation.primitive is collective_p:
            yield equation.params["operation"]
        for inner in core.jaxprs_in_params(equation.params):
            yield from _operations(inner)


mlir.register_lowering(conditionals.cond_p, _lower_conditional)


# ---- between programs, and at the end --------------------------------------------------------------------------------
_tokens: dict[tuple[Any, ...], Any] = {}  # key: devices


def _first_token(self: Any, effect: Any, devices: Any, original: Any = RuntimeTokenSet.get_token_input) -> Any:
    """Returns the same first token to every program.

    XLA itself runs the programs of a thread in order, so tokens need not order them. If a program
    got the token of the previous one, a failed program would make all later programs fail.
    """
    if effect is not EFFECT:
        return original(self, effect, devices)
    key = tuple(devices)
    if key not in _tokens:
        self.current_tokens.pop(effect, None)
        _tokens[key] = original(self, effect, devices)
    return _tokens[key]


RuntimeTokenSet.get_token_input = _first_token


def _call_without_tokens(self: Any, *arguments: Any, original: Any = MeshExecutable.create_cpp_call) -> Any:
    """Returns None, which selects JAX's slower path, for programs that communicate.

    JAX's fast path for programs compiled ahead of time omits the tokens of ordered effects: the
    second call would fail.
    """
    ordered = getattr(self.unsafe_call, "ordered_effects", ())
    return None if EFFECT in ordered else original(self, *arguments)


MeshExecutable.create_cpp_call = _call_without_tokens


def wait_for_programs() -> None:
    """Blocks until all dispatched programs have run: other ranks need this rank's collectives."""
    try:
        jax.effects_barrier()  # waits for this thread's programs
    except RuntimeError as error:
        runtime_tokens.clear()
        logger.error("the last JAX program of this rank failed: %s", error)
    for array in jax.live_arrays():
        with contextlib.suppress(RuntimeError):
            array.block_until_ready()


session.before_end.append(wait_for_programs)
