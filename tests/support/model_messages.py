"""Point-to-point messages of random programs: each step receives every message that it sends.

A receive with wildcards for both source and tag could match a later step's message, so a barrier
follows it. A receive that names its source or its tag cannot: the messages of a rank are received
in order, and each step has its own tags.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from drawn_calls import random_bytes
from model_calls import MOVED, Step, rows_of
from model_values import Array, laid_out

import ringcomm
from ringcomm import ANY_SOURCE, ANY_TAG, PROC_NULL

Finish = Callable[[], None]


class Messages:
    """The messages of one step on one rank."""

    def __init__(self, comm: ringcomm.Communicator, number: int, step: Step) -> None:
        self.comm, self.step, self.tag = comm, step, number * 2
        self.size, self.me = comm.size, comm.rank
        self.rows = rows_of(step, comm.size)
        self.dtype = MOVED[step.what % len(MOVED)]
        self.unfinished: list[Finish] = []

    def content(self, sender: int, index: int = 0) -> Array:
        return random_bytes(self.dtype, (self.rows[sender], *self.step.tail), self.step.seed, sender, index)

    def isend(self, dest: int, index: int = 0) -> None:
        x = laid_out(self.content(self.me, index), self.step.layout, self.comm)
        request = self.comm.isend(x, dest, self.tag + index)
        self.unfinished.append(lambda: self.sent(request, x, index))

    def sent(self, request: Any, x: Array, index: int) -> None:
        request.wait()
        assert np.asarray(x).tobytes() == self.content(self.me, index).tobytes()

    def space(self, nbytes: int | None = None) -> Array:
        longest = max(self.content(sender).nbytes for sender in range(self.size))
        return np.zeros(longest + 5 if nbytes is None else nbytes, np.uint8)

    def check(self, status: Any, out: Array, source: int, index: int = 0) -> None:
        want = self.content(source, index).tobytes()
        assert (status.source, status.tag, status.nbytes) == (source, self.tag + index, len(want)), status
        assert status.count(self.dtype) * self.dtype.itemsize == len(want)
        assert out[: len(want)].tobytes() == want and not out[len(want) :].any()

    def irecv(self, source: int, asked: int, tag: int, index: int = 0) -> None:
        """Posts a receive of `source`'s message; `asked`, `tag` may be wildcards. -1: any rank."""
        out = self.space()
        request = self.comm.irecv(out, asked, tag)

        def finish() -> None:
            while self.step.variant % 5 == 1 and not request.test():
                time.sleep(0)
            status = request.wait()
            self.check(status, out, status.source if source < 0 else source, index)

        self.unfinished.append(finish)

    # ---- patterns ----------------------------------------------------------------------------------------------------
    def sendrecv(self) -> None:
        shift = self.step.root % self.size
        source, dest = (self.me - shift) % self.size, (self.me + shift) % self.size
        asked = ANY_SOURCE if self.step.variant % 2 else source
        out, x = self.space(), np.asarray(laid_out(self.content(self.me), self.step.layout, self.comm))
        if self.step.variant % 4 == 0 and x.nbytes:  # the receive overwrites the data that is sent
            both = np.zeros(x.nbytes + len(out), np.uint8)
            both[: x.nbytes] = np.frombuffer(x.tobytes(), np.uint8)
            x, out = both[: x.nbytes], both[x.nbytes // 2 :][: len(out)]
            status = self.comm.sendrecv(x, dest, self.tag, out, asked, self.tag)
            out[status.nbytes :] = 0
            return self.check(status, out, source)
        status = self.comm.sendrecv(x, dest, self.tag, out, asked, self.tag)
        self.check(status, out, source)

    def shift(self) -> None:
        """Sends to a neighbour at a distance; the caller waits for it."""
        shift = self.step.root % self.size
        source, dest = (self.me - shift) % self.size, (self.me + shift) % self.size
        asked, tag = [(source, self.tag), (ANY_SOURCE, self.tag), (source, ANY_TAG)][self.step.variant % 3]
        if self.step.seed % 2:
            self.isend(dest)
        self.irecv(source, asked, tag)
        if not self.step.seed % 2:
            self.isend(dest)

    def chain(self) -> None:
        """Passes a message along: each rank receives from its predecessor, then sends."""
        if self.me > 0:
            out = self.space()
            asked = ANY_SOURCE if self.step.variant % 2 else self.me - 1
            self.check(self.comm.recv(out, asked, self.tag), out, self.me - 1)
        if self.me + 1 < self.size:
            self.comm.send(laid_out(self.content(self.me), self.step.layout, self.comm), self.me + 1, self.tag)

    def fan_in(self) -> None:
        """Sends two messages from every rank, including the root, to the root."""
        root = self.step.root % self.size
        self.isend(root, 0)
        self.isend(root, 1)
        way = (self.by_wildcards, self.by_tag, self.by_source, self.in_background)[self.step.variant % 4]
        if self.me == root:
            way()
        if way == self.by_wildcards:
            self.comm.barrier()

    def by_wildcards(self) -> None:
        got = [0] * self.size
        for _ in range(2 * self.size):
            out = self.space()
            status = self.comm.recv(out)
            self.check(status, out, status.source, got[status.source])
            got[status.source] += 1
        assert got == [2] * self.size

    def by_tag(self) -> None:
        for index in (1, 0):
            left = set(range(self.size))
            for _ in range(self.size):
                found = self.comm.probe(ANY_SOURCE, self.tag + index)
                out = self.space(found.nbytes)
                self.check(self.comm.recv(out, found.source, found.tag), out, found.source, index)
                left.remove(found.source)

    def by_source(self) -> None:
        for source in range(self.size):
            for index in (0, 1):
                while (found := self.comm.iprobe(source)) is None:
                    time.sleep(0)
                out = self.space(found.nbytes)
                self.check(self.comm.recv(out, source), out, source, index)

    def in_background(self) -> None:
        for index in (1, 0):
            for _ in range(self.size):
                self.irecv(-1, ANY_SOURCE, self.tag + index, index)

    def too_long(self) -> None:
        """Sends to a too short array: the receiver gets an error, and the sender continues."""
        shift = self.step.root % self.size
        self.isend((self.me + shift) % self.size)
        source = (self.me - shift) % self.size
        nbytes = self.content(source).nbytes
        out = self.space(nbytes // 2)
        if nbytes == 0:
            self.comm.recv(out, source, self.tag)
            return
        try:
            self.comm.recv(out, source, self.tag)
        except ringcomm.MismatchError:
            return
        raise AssertionError("a message longer than its receive was received")

    def nobody(self) -> None:
        """Posts receives for which no message is sent."""
        request = self.comm.irecv(self.space(), tag=1_000_000)
        assert request.cancel()
        request.wait()
        self.comm.send(np.ones(3), PROC_NULL, self.tag)
        assert self.comm.recv(self.space(), PROC_NULL, self.tag).nbytes == 0
        assert self.comm.iprobe(tag=1_000_000) is None


PATTERNS = [
    Messages.sendrecv,
    Messages.shift,
    Messages.shift,
    Messages.chain,
    Messages.fan_in,
    Messages.fan_in,
    Messages.too_long,
    Messages.nobody,
]


def exchange(comm: ringcomm.Communicator, number: int, step: Step) -> list[Finish]:
    """Starts a step's messages; returns the functions that wait for them, in any order."""
    messages = Messages(comm, number, step)
    PATTERNS[step.call % len(PATTERNS)](messages)
    return messages.unfinished
