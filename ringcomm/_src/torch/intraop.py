"""Limits torch's threads on a rank that is bound to a share of its host's cores."""

from __future__ import annotations

import torch

from ringcomm._src.platform import binding


def _limit_threads(cores: int) -> None:
    """Reduces torch's threads to this number of cores.

    torch counted all cores of the host when it was imported. With more threads than cores, threads
    wait for each other.
    """
    if torch.get_num_threads() > cores:
        torch.set_num_threads(cores)


binding.call_when_bound(_limit_threads)
