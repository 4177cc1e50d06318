"""Runs an all-reduce's schedule on given arrays, in Python, and keeps the values of every round.

It is for teaching and for pictures. Communicators run the same schedules in C++.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.algorithms.messages import Message, messages
from ringcomm._src.algorithms.registry import registered
from ringcomm._src.base import ops
from ringcomm._src.core import _core

Blocks = list[np.ndarray[Any, Any]]  # blocks of a rank; scratch blocks follow the data blocks

_FUNCTIONS: dict[Any, Any] = {
    ops.Sum: np.add,
    ops.Product: np.multiply,
    ops.Min: np.minimum,
    ops.Max: np.maximum,
    ops.BAND: np.bitwise_and,
    ops.BOR: np.bitwise_or,
    ops.BXOR: np.bitwise_xor,
}


class TraceMessage(NamedTuple):
    """A message of a traced all-reduce.

    Attributes
    ----------
    sender, receiver : int
        Ranks.
    blocks : list[int]
        Numbers of the blocks that `sender` sends.
    nbytes : int
        Length of the message in bytes.
    reduces : bool
        True if `receiver` reduces the data into its blocks; False if it replaces them.
    received_blocks : list[int]
        Numbers of the blocks of `receiver` that the data is for; from the number of data blocks on,
        these are scratch blocks.
    received : int
        The round of `receiver` in which it receives the message. For built-in algorithms, this is
        the round in which it is sent.

    Examples
    --------
    >>> trace = ringcomm.algorithms.trace("tree", [np.ones(2), np.ones(2)])
    >>> [message.sender for message in trace.messages[0]]
    [1]
    """

    sender: int
    receiver: int
    blocks: list[int]
    nbytes: int
    reduces: bool
    received_blocks: list[int]
    received: int


class Trace(NamedTuple):
    """The values and messages of an all-reduce, round by round.

    Attributes
    ----------
    buffers : list[list[np.ndarray]]
        ``buffers[i][r]`` is the array of rank r after i rounds; ``buffers[0]`` are the inputs and
        ``buffers[-1]`` the results. After its last round, a rank's array does not change.
    messages : list[list[TraceMessage]]
        ``messages[i]`` are the messages that are sent in round i, by sender.
    blocks : list[list[list[np.ndarray]]]
        ``blocks[i][r][b]`` is block b of rank r after i rounds. Scratch blocks follow the data
        blocks; their values are zero until the algorithm writes them.

    Examples
    --------
    >>> trace = ringcomm.algorithms.trace("ring", [np.array([1, 2]), np.array([10, 20])])
    >>> [[x.tolist() for x in after_round] for after_round in trace.buffers]
    [[[1, 2], [10, 20]], [[1, 22], [11, 20]], [[11, 22], [11, 22]]]
    >>> [len(round_messages) for round_messages in trace.messages]
    [2, 2]
    """

    buffers: list[list[np.ndarray[Any, Any]]]
    messages: list[list[TraceMessage]]
    blocks: list[list[Blocks]]


def trace(name: str, arrays: Sequence[Any], op: Any = ops.Sum) -> Trace:
    """Runs an all-reduce algorithm on the arrays of all ranks, and returns every round's values.

    It needs no communicator: one process runs the schedules of all ranks, in Python. The buffer is
    one segment, which is cut evenly into the algorithm's blocks.

    Parameters
    ----------
    name : str
        Name of a built-in algorithm, or of one that :func:`register_algorithm` has registered.
    arrays : Sequence[array_like]
        The array of each rank, by rank; at least one. Shapes and dtypes are equal.
    op : Any
        Sum, Product, Min, Max, BAND, BOR or BXOR; default Sum.

    Returns
    -------
    Trace
        The arrays after each round, and the messages of each round.

    Raises
    ------
    ValueError
        The algorithm or op is unknown, the algorithm is not proved for this number of ranks, or the
        arrays differ in shape or dtype.

    Examples
    --------
    >>> inputs = [np.array([1, 2, 3, 4]) * 10**r for r in range(3)]
    >>> trace = ringcomm.algorithms.trace("ring", inputs)
    >>> trace.buffers[-1][0].tolist()
    [111, 222, 333, 444]
    >>> message = trace.messages[0][0]  # of the first round
    >>> message.sender, message.receiver, message.blocks, message.nbytes
    (0, 1, [0], 16)
    """
    inputs = [np.asarray(array) for array in arrays]
    if not inputs:
        raise ValueError("trace: arrays must hold the array of at least one rank")
    if len({(x.shape, x.dtype) for x in inputs}) > 1:
        raise ValueError("trace: the arrays of all ranks must have the same shape and dtype")
    size, custom = len(inputs), registered("allreduce", name)
    schedules = (
        custom.schedules(size)
        if custom is not None
        else [_core.schedule("allreduce", name, rank, size) for rank in range(size)]
    )
    return trace_schedules(schedules, inputs, op)


def trace_schedules(schedules: Sequence[_core.Schedule], arrays: Sequence[np.ndarray[Any, Any]], op: Any) -> Trace:
    """Runs the proved schedules of an all-reduce as :func:`trace` does."""
    function = _FUNCTIONS.get(ops.as_op(op))
    if function is None:
        raise ValueError(f"trace: op must be one of {', '.join(known.name for known in _FUNCTIONS)}")
    inputs = [_cut(array, schedule) for array, schedule in zip(arrays, schedules, strict=True)]
    matched = messages(schedules)
    histories = _run(schedules, matched, inputs, function)
    rounds = max(len(history) for history in histories)
    blocks = [[history[min(i, len(history) - 1)] for history in histories] for i in range(rounds)]
    shape, data = arrays[0].shape, schedules[0].blocks
    buffers = [[np.concatenate(own[:data]).reshape(shape) for own in moment] for moment in blocks]
    found: list[list[TraceMessage]] = [[] for _ in range(rounds - 1)]
    for m in sorted(matched, key=lambda m: (m.sender, m.sent)):
        nbytes = sum(inputs[m.sender][b].nbytes for b in m.sent_blocks)
        found[m.sent].append(
            TraceMessage(m.sender, m.receiver, m.sent_blocks, nbytes, m.reduces, m.received_blocks, m.received)
        )
    return Trace(buffers, found, blocks)


def _cut(array: np.ndarray[Any, Any], schedule: _core.Schedule) -> Blocks:
    """Returns copies of the array's blocks, and scratch blocks of zeros."""
    blocks = [part.copy() for part in np.array_split(array.reshape(-1), schedule.blocks)]
    return [*blocks, *(np.zeros_like(blocks[like]) for like in schedule.temps)]


def _run(
    schedules: Sequence[_core.Schedule], matched: Sequence[Message], inputs: Sequence[Blocks], function: Any
) -> list[list[Blocks]]:
    """Returns the blocks of each rank before each of its rounds and after the last one.

    A rank runs its next round when the senders of that round's messages have begun theirs.
    """
    incoming: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for message in matched:
        incoming[message.receiver, message.received].append(message)
    histories = [[blocks] for blocks in inputs]
    rounds = [schedule.rounds for schedule in schedules]
    unfinished = {rank for rank, own in enumerate(rounds) if own}
    while unfinished:
        for rank in sorted(unfinished):
            history = histories[rank]
            index = len(history) - 1
            if all(len(histories[m.sender]) > m.sent for m in incoming[rank, index]):
                arrived = {
                    m.sender: iter([histories[m.sender][m.sent][b] for b in m.sent_blocks])
                    for m in incoming[rank, index]
                }
                history.append(_after_round(history[-1], rounds[rank][index], arrived, function))
                if len(history) > len(rounds[rank]):
                    unfinished.remove(rank)
    return histories


def _after_round(blocks: Blocks, steps: Sequence[_core.Step], arrived: dict[int, Any], function: Any) -> Blocks:
    """Returns a rank's blocks after its steps. `arrived`: an iterator of the parts, by sender."""
    blocks = list(blocks)
    for step in steps:
        if step.kind == "send":
            continue
        part = blocks[step.source] if step.kind in ("combine", "copy") else next(arrived[step.peer])
        if step.kind in ("reduce", "combine"):
            own = blocks[step.block]
            part = function(part, own) if step.incoming_first else function(own, part)
        blocks[step.block] = part
    return blocks
