"""Defines ringrun's options of elastic jobs: those of Horovod, and additional options."""

from __future__ import annotations

import argparse
import os
from functools import partial

from ringcomm._src.launch.numbers import not_negative, positive, seconds

ELASTIC_TIMEOUT = 600  # default of --elastic-timeout, in seconds


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds the options of elastic jobs to `group`."""
    add = group.add_argument
    number, often = partial(add, type=positive, metavar="N"), partial(add, type=not_negative, metavar="N")
    span = partial(add, type=seconds, metavar="SECONDS")
    number(
        "--min-np",
        "--min-num-proc",
        dest="min_np",
        help="smallest number of ranks; default: that of -np",
    )
    number("--max-np", "--max-num-proc", dest="max_np", help="largest number of ranks; default: that of the slots")
    often("--restarts", help="if a rank fails, start all ranks again, at most N times")
    often("--reset-limit", help="end the job after N changes of its ranks")
    add(
        "--elastic-timeout",
        type=positive,
        metavar="SECONDS",
        default=os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or ELASTIC_TIMEOUT,
        help=f"end the job if it has fewer than --min-np slots for this time (default {ELASTIC_TIMEOUT}, or "
        "HOROVOD_ELASTIC_TIMEOUT)",
    )
    add(
        "--blacklist-cooldown-range",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
        help="seconds after which the slot of a failed rank is used again: LEAST after its first failure, at most MOST "
        "after later ones",
    )
    span("--heartbeat-seconds", default=2.5, help="a host that sends nothing for this time is lost (default 2.5)")
    number("--commit-copies", help="number of hosts that store each commit; default: all")
    add(
        "--snapshots",
        metavar="DIR",
        help="also write commits to DIR/ringcomm-commit, in the background and when the job is interrupted; a later "
        "job with this DIR resumes from the commit",
    )
    span("--snapshot-seconds", default=60.0, help="time between two writes of --snapshots (default 60)")
    span("--leave-seconds", default=30.0, help="time in which ranks must commit after SIGTERM or SIGUSR1 (default 30)")
    add(
        "--cold-start",
        action="store_true",
        help="start a new interpreter for each rank, instead of a fork that has the program's modules",
    )
