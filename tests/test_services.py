"""Messages beside collectives (csrc/engine/service.hpp), over MPI; tests/core/test_services.cpp has their rules."""

from __future__ import annotations

import mpi_case
import numpy as np
import pytest

import ringcomm
from ringcomm import _core, runtime

SIZES = (0, 1, 5000, 300_000)  # bytes


def asks_and_answers(variants):
    """Every rank asks every other, and itself, and answers what it is asked, while named all-reduces run."""
    for variant in range(variants):
        ringcomm.init()
        session = runtime.session()
        rank, size = session.rank, session.size
        letters, others = _core.Letters(session.engine), _core.Letters(session.engine)

        def text(peer, number, variant=variant):
            return bytes([peer, number, variant]) * SIZES[number % len(SIZES)]

        expected = {peer: [text(peer, number) for number in range(9)] for peer in range(size)}
        answers = {peer: [] for peer in range(size)}
        sums, ended = [], None

        def look(answers=answers, letters=letters):
            for peer, letter in letters.collect():
                if letter[:1] == b"?":
                    letters.post(peer, b"!" + letter[1:])
                else:
                    answers[peer].append(letter[1:])

        for number in range(9):
            for peer in range(size):
                letters.post(peer, b"?" + expected[peer][number])
            others.post((rank + 1) % size, bytes([number]))
            sums.append(ringcomm.allreduce_async(np.full(1000, rank), name=f"sum {number}", op=ringcomm.Sum))
            look()
        while ended is None or not ringcomm.poll(ended):  # others may still ask after this rank has all its answers
            look()
            if ended is None and sum(map(len, answers.values())) == 9 * size:
                ended = ringcomm.allreduce_async(np.zeros(1), name="all have their answers")
        assert answers == expected
        for handle in sums:
            assert (ringcomm.synchronize(handle) == size * (size - 1) // 2).all()
        ringcomm.synchronize(ended)
        heard = []
        while len(heard) < 9:
            heard += others.collect()
        assert heard == [((rank - 1) % size, bytes([number])) for number in range(9)]  # of its own service, in order
        assert letters.why == ""
        ringcomm.shutdown()
        assert letters.why
        letters.post(0, b"to nobody")
        assert letters.collect() == []


@pytest.mark.mpi
@pytest.mark.parametrize("memory", ["auto", "off"])
def test_messages_of_any_rank_at_any_time(memory):
    mpi_case.run(3, asks_and_answers, 2, variables={"RINGCOMM_SHARED_MEMORY": memory})
