"""Who waits for whom at a parameter store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Consistency:
    """``gather``: so many gradients' mean is one update (0: each is one; -1: one of every worker). ``of_step``: those
    of one step only, the first that come. ``staleness``: a worker waits while it is more than so many steps ahead of
    the slowest; None: never."""

    name: str
    gather: int = 0
    of_step: bool = False
    staleness: int | None = None

    def many(self, workers: int) -> int:
        """Gradients that make an update; 0: they are not gathered. Raises ValueError if there are fewer workers."""
        if self.gather > workers:
            raise ValueError(f"{self.name}: there are {workers} workers only")
        return workers if self.gather < 0 else self.gather

    def __str__(self) -> str:
        return self.name


def Async() -> Consistency:
    """Every gradient is applied when it comes, nobody waits. Source: Dean et al., NIPS 2012."""
    return Consistency("Async()")


def SSP(staleness: int) -> Consistency:
    """As `Async`, but a worker waits while it is more than ``staleness`` steps ahead of the slowest. It smooths delays
    that come and go; one rank that is always slow holds up all. Source: Ho et al., NIPS 2013."""
    if staleness < 0:
        raise ValueError(f"SSP({staleness}): a number of steps")
    return Consistency(f"SSP({staleness})", staleness=staleness)


def SoftSync(gather: int) -> Consistency:
    """The mean of every ``gather`` gradients that come, of whichever workers, is one update; nobody waits. 1 is Async.
    Source: Zhang, Gupta, Lian and Liu, arXiv:1511.05950."""
    if gather < 1:
        raise ValueError(f"SoftSync({gather}): a positive number of gradients")
    return Consistency(f"SoftSync({gather})", gather)


def Sync() -> Consistency:
    """The mean of all workers' gradients of a step is one update, for which all wait. They are added in the order of
    ranks: the same bits in every run. It takes memory for each worker's gradient."""
    return Consistency("Sync()", -1, True)


def Backup(first: int) -> Consistency:
    """As `Sync`, of the first so many workers in each step; what comes later is dropped.
    Source: Chen et al., "Revisiting distributed synchronous SGD", arXiv:1604.00981."""
    if first < 1:
        raise ValueError(f"Backup({first}): a positive number of workers")
    return Consistency(f"Backup({first})", first, True)
