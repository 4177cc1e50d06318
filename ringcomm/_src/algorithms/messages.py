"""Pairs the sends and receives of schedules to messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ringcomm._src.core._core import Schedule


class Message(NamedTuple):
    """The blocks that `sender` sends in its round `sent`, and `receiver` receives in `received`."""

    sender: int
    receiver: int
    sent: int
    sent_blocks: list[int]
    received: int
    received_blocks: list[int]
    reduces: bool


def messages(schedules: Sequence[Schedule]) -> list[Message]:
    """Returns all messages: the k-th send of a rank to a peer matches the peer's k-th receive."""
    sent: dict[tuple[int, int], list[tuple[int, list[int]]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[int, list[int], bool]]] = defaultdict(list)
    for schedule in schedules:
        for index, steps in enumerate(schedule.rounds):
            for peer in dict.fromkeys(step.peer for step in steps if step.peer >= 0):
                own = [step for step in steps if step.peer == peer]
                if outgoing := [step.block for step in own if step.kind == "send"]:
                    sent[schedule.rank, peer].append((index, outgoing))
                if incoming := [step.block for step in own if step.kind != "send"]:
                    reduces = any(step.kind == "reduce" for step in own)
                    received[peer, schedule.rank].append((index, incoming, reduces))
    return [
        Message(*ends, *outgoing, arrival, incoming, reduces)
        for ends, departures in sent.items()
        for outgoing, (arrival, incoming, reduces) in zip(departures, received[ends], strict=True)
    ]
