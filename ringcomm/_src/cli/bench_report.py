"""Writes the table and the JSON of `ringcomm bench`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from ringcomm._src.base.installed import exists
from ringcomm._src.cli import measured
from ringcomm._src.cli.bench_cases import REDUCING, SHARED_ARRAYS
from ringcomm._src.cli.sizes import human_size
from ringcomm._src.cli.text import aligned

COLUMNS = ("size", "count", "dtype", "algorithm", "time", "algbw", "busbw", "#wrong", "speedup", "95 % CI", "loss")
UNITS = ("(B)", "(elements)", "", "", "(µs)", "(GB/s)", "(GB/s)", "", "(mpi/this)", "", "(%)")
WIDTHS = (12, 12, 9, 24, 12, 9, 9, 7, 11, 13, 6)


@dataclass
class Row:
    """One line of the table. Times are in seconds, bandwidths in bytes per second."""

    size: int
    count: int
    dtype: str
    algorithm: str
    ran: str
    time: float
    algbw: float
    busbw: float
    wrong: int
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    loss: float | None = None  # for "auto": its time / the time of ringcomm's fastest algorithm, minus 1
    times: list[float] = field(default_factory=list)


_line = partial(aligned, widths=WIDTHS, left=(3,))


def header(options: argparse.Namespace, ranks: int, one_clock: bool, gpu_route: str = "") -> list[str]:
    """Returns the lines above the table.

    `one_clock`: as in `measured.first_to_last`. `gpu_route`: route of GPU arrays.
    """
    op = f" {options.op}" if options.collective in REDUCING else ""
    place = " in place" if options.in_place and options.collective == "allreduce" else ""
    if options.device != "cpu":
        place += f" on {options.device}, route {gpu_route}"
    times = "times from the first rank's start to the last rank's end" if one_clock else "the slowest rank's times"
    rules = f"medians of {times}; inputs are rewritten before each call"
    return [
        f"# {options.collective}{op}{place}, {ranks} ranks; {rules}",
        "#" + _line(COLUMNS)[1:],
        "#" + _line(UNITS)[1:],
    ]


def write_rows(rows: Sequence[Row]) -> None:
    context: Any = nullcontext()
    if exists("tqdm"):
        from tqdm import tqdm

        context = tqdm.external_write_mode()
    with context:
        for row in rows:
            print(format_row(row), flush=True)


def format_row(row: Row) -> str:
    name = f"{row.algorithm} ({row.ran})" if row.ran and row.ran != row.algorithm else row.algorithm
    speedup = "" if row.speedup is None else f"{row.speedup:.2f}"
    interval = (
        "" if row.speedup_low is None or row.algorithm == "mpi" else f"{row.speedup_low:.2f}-{row.speedup_high:.2f}"
    )
    return _line(
        (
            str(row.size),
            str(row.count),
            row.dtype,
            name,
            f"{row.time * 1e6:.2f}",
            f"{row.algbw / 1e9:.2f}",
            f"{row.busbw / 1e9:.2f}",
            str(row.wrong),
            speedup,
            interval,
            "" if row.loss is None else f"{row.loss * 100:.1f}",
        )
    )


def losses(rows: Sequence[Row]) -> list[str]:
    """Returns the lines with the largest and the mean loss of auto against the fastest algorithms."""
    chosen = [row for row in rows if row.loss is not None]
    if not chosen:
        return []
    worst = max(chosen, key=lambda row: row.loss or 0.0)
    rivals = [row for row in rows if row.size == worst.size and row.algorithm not in ("mpi", SHARED_ARRAYS)]
    best = min(rivals, key=lambda row: row.time)
    what = f" ({human_size(worst.size)}: {worst.ran} ran, {best.algorithm} was fastest)" if worst.loss else ""
    mean = measured.mean_loss(row.loss or 0.0 for row in chosen)
    return [
        f"# auto was slower than the fastest algorithm by at most {(worst.loss or 0.0) * 100:.1f} %{what}, "
        f"{mean * 100:.1f} % in the geometric mean of {len(chosen)} size{'s' * (len(chosen) > 1)}",
        "",
    ]


def write_json(options: argparse.Namespace, ranks: int, rows: Sequence[Row]) -> None:
    settings = {key: value for key, value in vars(options).items() if key not in ("run", "command", "json", "plot")}
    document = {
        "ranks": ranks,
        "date": measured.now(),
        "options": settings,
        "machine": measured.machine(),
        "units": {"time": "s", "algbw": "B/s", "busbw": "B/s", "size": "B"},
        "rows": [asdict(row) for row in rows],
    }
    measured.write_json(options.json, document)
