"""Options of jobs whose ranks come and go: Horovod's, and some of ours."""

from __future__ import annotations

import argparse
import os

from ringcomm.launch.numbers import not_negative, positive, seconds

ELASTIC_TIMEOUT = 600  # seconds


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """All of them."""
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        dest="min_np",
        type=positive,
        metavar="N",
        help="go on while there are so many slots",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        dest="max_np",
        type=positive,
        metavar="N",
        help="use so many slots at most; default: all",
    )
    group.add_argument(
        "--restarts",
        type=not_negative,
        metavar="N",
        help="start the program again, so often at most, when a rank fails; all ranks as before",
    )
    group.add_argument(
        "--reset-limit", type=not_negative, metavar="N", help="give up after so many changes of the ranks"
    )
    group.add_argument(
        "--elastic-timeout",
        type=positive,
        metavar="SECONDS",
        default=os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or ELASTIC_TIMEOUT,
        help=f"give up if there are fewer than --min-np slots for so long (default {ELASTIC_TIMEOUT}, or "
        "HOROVOD_ELASTIC_TIMEOUT)",
    )
    group.add_argument(
        "--blacklist-cooldown-range",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
        help="seconds after which a slot whose rank failed is used again, from the first time to later ones",
    )
    group.add_argument(
        "--heartbeat-seconds",
        type=seconds,
        metavar="SECONDS",
        default=2.5,
        help="a host that is silent for so long is lost (default 2.5)",
    )
    group.add_argument(
        "--commit-copies", type=positive, metavar="N", help="hosts that keep commits in their memory; default: all"
    )
    group.add_argument(
        "--snapshots",
        metavar="DIR",
        help="also write commits to DIR/ringcomm-commit, in the background and when the job is interrupted; a job that "
        "finds one there goes on from it",
    )
    group.add_argument(
        "--snapshot-seconds", type=seconds, metavar="SECONDS", default=60.0, help="between two of these (default 60)"
    )
    group.add_argument(
        "--leave-seconds",
        type=seconds,
        metavar="SECONDS",
        default=30.0,
        help="in which ranks must commit after SIGTERM or SIGUSR1 (default 30)",
    )
    group.add_argument(
        "--cold-start",
        action="store_true",
        help="start each rank as a new process, not from one that has imported what the program needs",
    )
