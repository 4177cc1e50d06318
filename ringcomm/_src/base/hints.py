"""Hints for users of mpi4py: its method names on a communicator raise an AttributeError that gives ringcomm's name."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

Class = TypeVar("Class", bound=type)

# mpi4py's names that differ from ringcomm's in more than a capital letter.
_OTHERS = {
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


class _Renamed:
    """A descriptor that raises AttributeError when read. A class's __getattr__ would slow down every attribute."""

    def __init__(self, ours: str) -> None:
        self._ours, self._name = ours, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, it: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"a communicator has no attribute {self._name!r}; it is called {self._ours!r} here")


def hint_at_names(cls: Class) -> Class:
    """Class decorator that adds a hint for each of mpi4py's names of the class's methods."""
    capitals = {name.capitalize(): name for name in dir(cls) if name[0] != "_" and callable(getattr(cls, name))}
    for theirs, ours in (capitals | _OTHERS).items():
        hint = _Renamed(ours)
        hint.__set_name__(cls, theirs)
        setattr(cls, theirs, hint)
    return cls
