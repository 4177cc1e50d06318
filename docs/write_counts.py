"""Fills in the table of docs/algorithms.md that counts the data which each algorithm sends.

The algorithms run on ranks that are threads; `Communicator.stats()` counts their messages and
bytes. The table is between <!-- counts --> and <!-- /counts -->.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import ringcomm
from ringcomm import threads
from ringcomm._src.core import _core

PAGE = Path(__file__).with_name("algorithms.md")
SIZES = (4, 5, 8)
COUNT = 2520 * 8  # elements of the buffer: a multiple of every number of ranks
ONE_PIECE = ringcomm.Config(shared_memory="off", segment_bytes=1 << 30, window=1)


def sent(name: str, size: int) -> list[ringcomm.OperationStats]:
    """Returns the statistics of one all-reduce, for each rank."""

    def program(comm: ringcomm.Communicator) -> ringcomm.OperationStats:
        comm.allreduce(np.zeros(COUNT), algorithm=name)
        return comm.stats().of("allreduce")

    return threads.run(size, program, config=ONE_PIECE)


def rows() -> Iterator[str]:
    yield "| sent by the busiest rank, and by all | " + " | ".join(f"{size} ranks" for size in SIZES) + " |\n"
    yield "|---|" + "---|" * len(SIZES) + "\n"
    for algorithm in _core.algorithms():
        if algorithm.collective != "allreduce":
            continue
        cells = []
        for size in SIZES:
            ranks = sent(algorithm.name, size)
            messages = max(one.messages_sent for one in ranks)
            most, together = (act(one.bytes_sent for one in ranks) / (8 * COUNT) for act in (max, sum))
            cells.append(f"{messages} messages, {most:.4g} S; {together:.4g} S")
        yield f"| `{algorithm.name}` | " + " | ".join(cells) + " |\n"


def page(text: str) -> str:
    before, _, rest = text.partition("<!-- counts -->\n")
    after = rest.partition("<!-- /counts -->")[2]
    return f"{before}<!-- counts -->\n{''.join(rows())}<!-- /counts -->{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
