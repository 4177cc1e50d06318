"""Names that people try on a communicator because they know them from mpi4py, and what they are called here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcomm.arguments import nearest

# mpi4py's names that are not ours in capitals, with Get_ or with a prefix or suffix of both.
_OTHERS = {
    "bcast": "broadcast",
    "ibcast": "ibroadcast",
    "bcast_init": "broadcast_init",
    "reduce_scatter_block": "reducescatter",
    "ireduce_scatter_block": "ireducescatter",
    "alltoallw": "alltoallv",
    "free": "close",
    "dup": "split",
    "clone": "split",
    "mprobe": "probe",
    "ssend": "send",
    "bsend": "send",
    "neighbor_allgather": "neighbours",
    "neighbor_alltoall": "neighbours",
}


def own_name(name: str, known: list[str]) -> str:
    """What mpi4py's `name` is called among the names `known`; empty if nothing corresponds to it."""
    plain = name.lower().removeprefix("get_")
    plain = _OTHERS.get(plain, plain)
    return plain if plain in known else ""


class MpiNames:
    """Gives a communicator's AttributeError the right name. It costs nothing where an attribute exists."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                known = [one for one in dir(type(self)) if not one.startswith("_")] + ["rank", "size"]
                found = own_name(name, known)
                text += f"; it is called {found!r} here" if found else nearest(name, known)
            raise AttributeError(text, name=name, obj=self)
