"""Custom algorithms: schedules, written in Python, for any collective (docs/algorithms.md)."""

from ringcomm._src.algorithms.registry import (
    COLLECTIVES,
    Algorithm,
    combine,
    copy,
    receive,
    reduce,
    register_algorithm,
    send,
)

__all__ = [
    "COLLECTIVES",
    "Algorithm",
    "combine",
    "copy",
    "receive",
    "reduce",
    "register_algorithm",
    "send",
]
