"""Collectives on Python objects, which are sent as pickled bytes. Bindings export them under Horovod's names."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ringcomm._src.base.installed import lacks
from ringcomm._src.named import collectives, runtime
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

try:
    import cloudpickle as _pickler  # it pickles lambdas and local classes too
except ImportError:
    _pickler = pickle


def pack(obj: Any, extra: str) -> np.ndarray[Any, Any]:
    """Returns the pickled object as uint8. `extra`: pip extra of the binding, for the message of PicklingError."""
    try:
        return np.frombuffer(bytearray(_pickler.dumps(obj)), np.uint8)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if why := lacks("cloudpickle", f"this {type(obj).__name__} cannot be pickled ({error}); to send it", extra):
            raise pickle.PicklingError(why) from None
        raise


def unpack(data: np.ndarray[Any, Any]) -> Any:
    return pickle.loads(data.tobytes())


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    extra: str = "torch",
) -> Any:
    """Returns the root's object on every rank.

    Args:
        obj: on the root, any object that can be pickled (with cloudpickle if installed); ignored on other ranks.
        root_rank: global rank of the root.
        name: name of the operation, given on all ranks or on none.
        process_set: the ranks that take part.

    Returns:
        ``obj`` itself on the root, a copy of it on the other ranks.
    """
    name = name or "broadcast_object"
    here = runtime.rank() == root_rank
    data = pack(obj, extra) if here else np.empty(0, np.uint8)
    size = np.array([data.size], np.int64)
    collectives.broadcast_(size, root_rank, f"{name}.sz", process_set)
    if not here:
        data = np.empty(int(size[0]), np.uint8)
    collectives.broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if here else unpack(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, extra: str = "torch"
) -> list[Any]:
    """Returns every rank's object, in rank order.

    Args:
        obj: any object that can be pickled (with cloudpickle if installed).
        name: name of the operation, given on all ranks or on none.
        process_set: the ranks that take part.
    """
    name = name or "allgather_object"
    data = pack(obj, extra)
    sizes = collectives.allgather_async(np.array([data.size], np.int64), f"{name}.sz", process_set)
    everything = collectives.allgather_async(data, f"{name}.t", process_set)
    lengths = collectives.synchronize(sizes)
    return [unpack(part) for part in np.split(collectives.synchronize(everything), np.cumsum(lengths)[:-1])]
