"""How JAX's programs communicate: compiled ones by a handler of XLA's foreign function interface (_op_library.c), or
where that cannot be by io_callback, which calls Python; and what is not traced at once."""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from ringcomm import _core, sites
from ringcomm.sites import Description

logger = logging.getLogger("ringcomm")
LIBRARY = Path(__file__).with_name("_op_library.so")
TARGET = "ringcomm_run_site"

Shapes = Sequence[jax.ShapeDtypeStruct]


@cache
def has_handler() -> bool:
    """Whether XLA has got it; if not, this is said once."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        if not library.ringcomm_connect(ctypes.c_void_p(_core.site_functions())):
            raise OSError(f"{LIBRARY} is of another version of ringcomm")
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.ringcomm_run_site), platform="cpu")
    except (OSError, AttributeError, RuntimeError) as error:
        logger.warning("JAX's programs communicate by io_callback, which is slower: %s", error)
        return False
    return True


_eager = sites.Kept(lambda site: site)


def run(what: Description, inputs: Sequence[Any], shapes: Shapes, in_place: bool = False) -> list[Any]:
    """Runs it now, or puts it into the program that is being traced. `in_place`: in the inputs' memory."""
    if any(type(one).__name__ == "BatchTracer" for one in inputs):
        raise ValueError(
            "collectives cannot be mapped over: call them outside of jax.vmap and jax.pmap, on whole arrays"
        )
    if not any(isinstance(one, jax.core.Tracer) for one in inputs):
        results = sites.run(_eager.get(what), [np.asarray(one) for one in inputs])
        return [jnp.asarray(one) for one in results]
    site = sites.make(what)
    if jax.default_backend() != "cpu" or not has_handler():  # a program of GPUs hands arrays to Python on the host

        def act(*arrays: Any) -> Any:
            return sites.run(site, [np.asarray(one) for one in arrays])

        return list(io_callback(act, list(shapes), *inputs, ordered=True))
    call = jax.ffi.ffi_call(
        TARGET,
        list(shapes),
        has_side_effect=True,
        input_output_aliases={i: i for i in range(len(shapes))} if in_place else None,
    )
    after = _order.last(inputs)
    results = list(call(*inputs, *after, site=np.int64(site.id), inputs=np.int64(len(inputs))))
    _order.remember(results)
    return results


class _Order(threading.local):
    """XLA may run what does not depend on each other in any order, and each op that waits for other ranks takes a
    thread. So that ranks cannot wait for each other crosswise, each takes a result of the last of its program."""

    result: Any = None

    def last(self, inputs: Sequence[Any]) -> list[Any]:
        traces = [getattr(one, "_trace", None) for one in inputs if isinstance(one, jax.core.Tracer)]
        mine = getattr(self.result, "_trace", None)
        return [self.result] if mine is not None and all(one is mine for one in traces) else []

    def remember(self, results: list[Any]) -> None:
        self.result = results[0] if results else None


_order = _Order()


def caller() -> str:
    """A name for what has none: where in the user's program it stands. Not by counting: a rank may trace a function
    once more than others."""
    frame = sys._getframe(1)
    inside = ("ringcomm", "jax", "jaxlib", "keras", "optax", "contextlib", "functools")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        frame = frame.f_back
    return f"{frame.f_code.co_name}:{frame.f_lineno}"
