"""Custom algorithms, as schedules in Python for any collective, and traces of algorithms."""

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
from ringcomm._src.algorithms.trace import Trace, TraceMessage, trace

__all__ = [
    "COLLECTIVES",
    "Algorithm",
    "Trace",
    "TraceMessage",
    "combine",
    "copy",
    "receive",
    "reduce",
    "register_algorithm",
    "send",
    "trace",
]
