"""Collectives on Python objects, which are sent as pickled bytes, under Horovod's names."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ringcomm._src.base.installed import missing_message
from ringcomm._src.named import collectives, runtime
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

try:
    import cloudpickle as _pickler  # it pickles lambdas and local classes too
except ImportError:
    _pickler = pickle


def pack(obj: Any, extra: str) -> np.ndarray[Any, Any]:
    """Returns the pickled object as uint8. PicklingError names `extra`, the binding's pip extra."""
    try:
        return np.frombuffer(bytearray(_pickler.dumps(obj)), np.uint8)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if why := missing_message(
            "cloudpickle", f"this {type(obj).__name__} cannot be pickled ({error}); sending it", extra
        ):
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

    Parameters
    ----------
    obj
        On the root, any object that can be pickled (with cloudpickle if installed); ignored on
        other ranks.
    root_rank : int
        Global rank of the root.
    name : str | None
        Name of the operation, given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.
    extra : str
        Name of the pip extra in the message of PicklingError.

    Returns
    -------
    Any
        ``obj`` itself on the root, a copy of it on the other ranks.

    Raises
    ------
    pickle.PicklingError, AttributeError, TypeError
        The root's object cannot be pickled.

    Examples
    --------
    >>> hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None, root_rank=0)
    {'epoch': 3}
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

    Parameters
    ----------
    obj
        Any object that can be pickled (with cloudpickle if installed).
    name : str | None
        Name of the operation, given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.
    extra : str
        Name of the pip extra in the message of PicklingError.

    Returns
    -------
    list[Any]
        One object of each rank.

    Raises
    ------
    pickle.PicklingError, AttributeError, TypeError
        The object cannot be pickled.

    Examples
    --------
    >>> hvd.allgather_object({"rank": hvd.rank()})
    [{'rank': 0}, {'rank': 1}]
    """
    name = name or "allgather_object"
    data = pack(obj, extra)
    sizes = collectives.allgather_async(np.array([data.size], np.int64), f"{name}.sz", process_set)
    everything = collectives.allgather_async(data, f"{name}.t", process_set)
    lengths = collectives.synchronize(sizes)
    return [unpack(part) for part in np.split(collectives.synchronize(everything), np.cumsum(lengths)[:-1])]
