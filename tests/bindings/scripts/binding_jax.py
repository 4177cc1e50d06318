"""`ringcomm.jax` for `script_ranks`: its names in scripts, its reference, and mutants.

The collectives of the reference are ordered callbacks.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"  # shortens compilation
os.environ.update(JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1", XLA_FLAGS=FLAGS)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax._src import effects  # noqa: E402
from jax._src.callback import OrderedIOEffect, _OrderedIOEffect  # noqa: E402
from jax.core import ShapedArray  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402
from jax.interpreters import ad, batching, mlir  # noqa: E402
from script_parts import PlainRanks, PlainSet, Watched  # noqa: E402

import ringcomm.jax as product  # noqa: E402
from ringcomm._src.jax import derivatives, functions, operations  # noqa: E402

FAILURES: tuple[type[Exception], ...] = (jax.errors.JaxRuntimeError,)


def tolerance(text: str) -> float:
    """Returns the relative tolerance of the script's results."""
    return 2e-2 if "bfloat16" in text else 1e-3 if any(one in text for one in ("float32", "float16")) else 1e-7


# ---- the reference ---------------------------------------------------------------------------------------------------
effects.remat_allowed_effects.add_type(OrderedIOEffect)
effects.custom_derivatives_allowed_effects.add_type(OrderedIOEffect)


class Sent(NamedTuple):
    hvd: Any
    op: str
    root: int  # -1: a reduction
    members: PlainSet | None


plain_p = Primitive("plain")
plain_p.multiple_results = True


def sent_now(*arrays: Any, sent: Sent) -> list[Any]:
    given = [np.asarray(one) for one in arrays]
    if sent.root >= 0:
        return list(sent.hvd.gather(given)[sent.root])
    return list(sent.hvd.mean(given, sent.op, sent.members))


def sent_back(gradients: Any, *operands: Any, sent: Sent) -> list[Any]:
    given = [ad.instantiate_zeros(one) for one in gradients]
    if sent.root < 0:
        return list(plain_p.bind(*given, sent=sent))
    means = plain_p.bind(*given, sent=sent._replace(root=-1, op=PlainRanks.Average))
    return [one if sent.hvd.rank() == sent.root else jnp.zeros_like(one) for one in means]


def sent_derivative(primals: Any, tangents: Any, *, sent: Sent) -> Any:
    moving = [ad.instantiate_zeros(one) for one in tangents]
    return plain_p.bind(*primals, sent=sent), plain_p.bind(*moving, sent=sent)


def called_back(*arrays: Any, sent: Sent) -> Any:
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays]
    return io_callback(partial(sent_now, sent=sent), shapes, *arrays, ordered=True)


plain_p.def_impl(lambda *arrays, sent: [jnp.asarray(one) for one in sent_now(*arrays, sent=sent)])
plain_p.def_effectful_abstract_eval(
    lambda *arrays, sent: ([ShapedArray(one.shape, one.dtype) for one in arrays], {_OrderedIOEffect})
)
mlir.register_lowering(plain_p, mlir.lower_fun(called_back, multiple_results=True))
ad.primitive_jvps[plain_p] = sent_derivative
ad.primitive_transposes[plain_p] = sent_back
batching.primitive_batchers[plain_p] = lambda arrays, axes, sent: (plain_p.bind(*arrays, sent=sent), list(axes))


class Plain(PlainRanks):
    Compression = product.Compression

    def _send(self, tree: Any, op: str | None = None, root: int = -1, process_set: PlainSet | None = None) -> Any:
        leaves, shape = jax.tree.flatten(tree)
        if not leaves:
            return tree
        sent = Sent(self, op or self.Average, root, process_set)
        return jax.tree.unflatten(shape, plain_p.bind(*map(jnp.asarray, leaves), sent=sent))

    def allreduce(self, array: Any, op: str | None = None, name: str = "") -> Any:
        return self._send(array, op)

    def grouped_allreduce(self, arrays: Any, op: str | None = None, name: str = "") -> Any:
        return self._send(arrays, op)

    def allgather(self, array: Any) -> Any:
        return jnp.concatenate(self.gather(np.asarray(array)))

    def broadcast_parameters(self, tree: Any, root_rank: int) -> Any:
        return self._send(tree, root=root_rank)

    def allreduce_gradients(self, tree: Any, op: str | None = None, process_set: Any = None, **how: Any) -> Any:
        return self._send(tree, op, process_set=process_set)

    def distributed(self, transformation: Any, **options: Any) -> Any:
        def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
            return transformation.update(self.allreduce_gradients(updates, **options), state, params, **more)

        if isinstance(transformation, optax.MultiSteps):
            transformation, init = transformation, transformation.init
            return optax.GradientTransformation(init, update)
        return transformation._replace(update=update)


# ---- names in scripts ------------------------------------------------------------------------------------------------
@jax.tree_util.register_pytree_node_class
class Pair:
    """A container of parameters, one of which may be None."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def tree_flatten(self) -> Any:
        return (self.first, self.second), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Pair:
        return cls(*children)


def mlp() -> dict[str, Any]:
    random = np.random.default_rng(7)
    shapes = {"w1": (5, 4), "b1": (4,), "w2": (4, 2), "b2": (2,)}
    return {name: jnp.asarray(random.standard_normal(shape)) for name, shape in shapes.items()}


def predict(params: Any, x: Any) -> Any:
    """Computes the two layers among the leaves, and adds the sum of all other leaves."""
    leaves = jax.tree.leaves(params)
    w1, w2 = (one for one in leaves if one.ndim == 2 and one.size)
    b1, b2 = (one for one in leaves if one.ndim == 1)
    rest = sum((one.sum() for one in leaves if one.ndim == 0 or not one.size), start=0.0)
    return (jnp.tanh(x @ w1 + b1) @ w2 + b2 + rest).astype(x.dtype)


def apply(optimizer: Any, params: Any, state: Any, gradients: Any) -> Any:
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state


class User(Watched):
    def batch(self, rows: int = 3) -> tuple[Any, Any]:
        """Returns a batch. Ranks have different numbers of rows."""
        random = self.random()
        shape = rows + self.hvd.rank()
        return jnp.asarray(random.standard_normal((shape, 5))), jnp.asarray(random.standard_normal((shape, 2)))

    def see(self, *trees: Any) -> None:
        for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
            value = np.asarray(leaf)
            self.note(jax.tree_util.keystr(path), value.astype(np.float32) if value.dtype.name == "bfloat16" else value)

    def custom(self) -> Callable[[Any], Any]:
        """A function with a custom derivative. It communicates forward and backward."""
        custom = jax.custom_vjp(lambda v: self.hvd.allreduce(v) ** 2)
        custom.defvjp(lambda v: (self.hvd.allreduce(v) ** 2, v), lambda v, g: (self.hvd.allreduce(g * v),))
        return custom

    def names(self) -> dict[str, Any]:
        hvd = self.hvd
        own = {"hvd": hvd, "rank": hvd.rank(), "size": hvd.size(), "custom": self.custom()}
        own |= {"batch": self.batch, "see": self.see, "note": self.note}
        own |= {"mlp": mlp, "predict": predict, "apply": apply, "Pair": Pair}
        return own | {"jax": jax, "jnp": jnp, "np": np, "optax": optax, "partial": partial, "io": io, "pickle": pickle}


# ---- mutants ---------------------------------------------------------------------------------------------------------
def sums_in_the_backward_pass() -> Any:
    """The gradient of an average is the sum instead of the average."""
    real = derivatives._transpose

    def transposed(gradients: Any, *operands: Any, operation: Any) -> Any:
        changed = (
            operation._replace(how=derivatives.SUM) if operation.collective == derivatives.ALLREDUCE else operation
        )
        return real(gradients, *operands, operation=changed)

    return mock.patch.dict(ad.primitive_transposes, {derivatives.collective_p: transposed})


def leaves_out_the_last() -> Any:
    """The last gradient of a tree is not reduced."""
    real = functions.allreduce_gradients

    def reduced(gradients: Any, *how: Any, **named: Any) -> Any:
        leaves, tree = jax.tree.flatten(gradients)
        others = jax.tree.leaves(real(gradients, *how, **named))
        return jax.tree.unflatten(tree, [*others[:-1], *leaves[-1:]])

    return mock.patch.object(functions, "allreduce_gradients", reduced)


def sums_what_is_grouped() -> Any:
    """A grouped all-reduce with a name sums."""
    real = operations.allreduce

    def reduced(arrays: Any, name: Any, grouped: bool, how: Any, *rest: Any) -> Any:
        return real(arrays, name, grouped, derivatives.SUM if name == "parts" else how, *rest)

    return mock.patch.object(operations, "allreduce", reduced)


MUTANTS = {one.__name__: one for one in (sums_in_the_backward_pass, leaves_out_the_last, sums_what_is_grouped)}


@contextlib.contextmanager
def mutated(name: str, plain: Any) -> Iterator[Any]:
    with MUTANTS[name]():
        yield product
