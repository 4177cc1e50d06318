"""Suggests the algorithm or topology that a misspelled name means."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ringcomm._src.core import _core
from ringcomm._src.decentralized.topology import topologies


def did_you_mean(name: str, known: Sequence[str]) -> str | None:
    """Returns the known name that is closest, ignoring case and "-", or None."""
    plain = {other.lower(): other for other in known}
    found = get_close_matches(name.lower().replace("-", "_"), list(plain), n=1, cutoff=0.7)
    return plain[found[0]] if found else None


def algorithm_hint(collective: str, name: str) -> str | None:
    """Returns which algorithm, of this or another collective, or which topology a name may mean."""
    base, colon, rest = name.partition(":")
    of_name: dict[str, list[str]] = {}
    for algorithm in _core.algorithms():
        of_name.setdefault(algorithm.name, []).append(algorithm.collective)
    here = [known for known, collectives in of_name.items() if collective in collectives]
    others = [known for known in of_name if known not in here]
    close = None if base.lower() in others else did_you_mean(base, here)
    if close:
        return f"there is no {collective} algorithm {name!r}: did you mean {close}{colon}{rest}?"
    if close := did_you_mean(base, others):
        owners = of_name[close]
        question = f"did you mean --collective {owners[0]}? " + (f"({close}) " if close != name else "")
        return f"there is no {collective} algorithm {name!r}: {question}{close} is an algorithm of {', '.join(owners)}"
    if close := did_you_mean(name, [topology.name for topology in topologies()]):
        return f"there is no {collective} algorithm {name!r}: did you mean the topology? --topology {close}"
    return None


def topology_hint(name: str) -> str | None:
    """Returns which topology a name may mean, or None if it is known or none is close."""
    known = [topology.name for topology in topologies()]
    close = None if name in known else did_you_mean(name, known)
    return f"there is no topology {name!r}: did you mean {close}?" if close else None
