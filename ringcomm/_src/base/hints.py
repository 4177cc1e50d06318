"""Hints for users of mpi4py: its method names raise an error that names ringcomm's method."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

Class = TypeVar("Class", bound=type)

# mpi4py's names that differ from ringcomm's in more than a capital letter.
_RENAMED = {
    "Get_rank": "rank",
    "Get_size": "size",
    "Bcast": "broadcast",
    "bcast": "broadcast",
    "Ibcast": "ibroadcast",
    "Bcast_init": "broadcast_init",
    "Reduce_scatter_block": "reducescatter",
    "Free": "close",
    "Ssend": "send",
    "Bsend": "send",
    "Neighbor_allgather": "neighbours",
    "Neighbor_alltoall": "neighbours",
}


class _RenamedMethod:
    """A descriptor that raises AttributeError. A __getattr__ would slow down every access."""

    def __init__(self, ringcomm_name: str) -> None:
        self._ringcomm_name, self._name = ringcomm_name, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"a ringcomm communicator has no attribute {self._name!r}; use {self._ringcomm_name!r}")


def add_mpi4py_hints(cls: Class) -> Class:
    """Class decorator that adds a hint for each method whose name differs in mpi4py."""
    capitals = {name.capitalize(): name for name in dir(cls) if name[0] != "_" and callable(getattr(cls, name))}
    for mpi4py_name, ringcomm_name in (capitals | _RENAMED).items():
        hint = _RenamedMethod(ringcomm_name)
        hint.__set_name__(cls, mpi4py_name)
        setattr(cls, mpi4py_name, hint)
    return cls
