"""torch's own threads, on a rank that was given a share of its host's cores."""

from __future__ import annotations

import torch

from ringcomm._src.platform import binding


def _keep_to(cores: int) -> None:
    """torch counted the host's cores when it was imported. With more threads than cores, each waits for another's."""
    if torch.get_num_threads() > cores:
        torch.set_num_threads(cores)


binding.when_given(_keep_to)
