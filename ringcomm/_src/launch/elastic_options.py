"""Defines ringrun's options of elastic jobs: those of Horovod, and additional options. options.py adds them."""

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
    number("--min-np", "--min-num-proc", dest="min_np", help="go on while there are so many slots")
    number("--max-np", "--max-num-proc", dest="max_np", help="use so many slots at most; default: all")
    often("--restarts", help="start the program again, so often at most, when a rank fails; all ranks as before")
    often("--reset-limit", help="give up after so many changes of the ranks")
    add(
        "--elastic-timeout",
        type=positive,
        metavar="SECONDS",
        default=os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or ELASTIC_TIMEOUT,
        help=f"give up if there are fewer than --min-np slots for so long (default {ELASTIC_TIMEOUT}, or "
        "HOROVOD_ELASTIC_TIMEOUT)",
    )
    add(
        "--blacklist-cooldown-range",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
        help="seconds after which a slot whose rank failed is used again, from the first time to later ones",
    )
    span("--heartbeat-seconds", default=2.5, help="a host that is silent for so long is lost (default 2.5)")
    number("--commit-copies", help="hosts that keep commits in their memory; default: all")
    add(
        "--snapshots",
        metavar="DIR",
        help="also write commits to DIR/ringcomm-commit, in the background and when the job is interrupted; a job that "
        "finds one there goes on from it",
    )
    span("--snapshot-seconds", default=60.0, help="between two of these (default 60)")
    span("--leave-seconds", default=30.0, help="in which ranks must commit after SIGTERM or SIGUSR1 (default 30)")
    add(
        "--cold-start",
        action="store_true",
        help="start each rank as a new process, not from one that has imported what the program needs",
    )
