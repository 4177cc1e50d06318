"""Consistency models of a parameter store: when gradients are applied, and when workers wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Consistency:
    """A consistency model of a parameter store.

    ``gather``: number of gradients whose mean is one update (0: each gradient is an update; -1: one
    gradient of every worker). ``of_step``: an update combines gradients of one step only, those
    that arrive first. ``staleness``: a worker waits while it is more than this number of steps
    ahead of the slowest worker; None: it never waits.

    Examples
    --------
    >>> print(ringcomm.Sync(), ringcomm.Sync().many(workers=4))  # a gradient of each worker
    Sync() 4
    """

    name: str
    gather: int = 0
    of_step: bool = False
    staleness: int | None = None

    def many(self, workers: int) -> int:
        """Returns the number of gradients in an update; 0 if gradients are not gathered.

        Raises ValueError if there are fewer workers than gradients.
        """
        if self.gather > workers:
            raise ValueError(f"{self.name} gathers more gradients than the store has workers ({workers})")
        return workers if self.gather < 0 else self.gather

    def __str__(self) -> str:
        return self.name


def Async() -> Consistency:
    """Returns the model without waiting: a gradient is applied when it arrives.

    Source: Dean et al., "Large scale distributed deep networks", NIPS 2012.

    Examples
    --------
    >>> print(ringcomm.Async().staleness)
    None
    """
    return Consistency("Async()")


def SSP(staleness: int) -> Consistency:
    """Returns the stale synchronous parallel model, in which fast workers wait for the slowest one.

    As `Async`, but a worker waits while it is more than ``staleness`` steps ahead of the slowest.
    This model smooths temporary delays; a rank that is always slow delays all ranks. Source: Ho et
    al., NIPS 2013.

    Raises ValueError if ``staleness`` is negative.

    Examples
    --------
    >>> ringcomm.SSP(3).staleness
    3
    """
    if staleness < 0:
        raise ValueError(f"SSP({staleness}): the staleness must be 0 or more steps")
    return Consistency(f"SSP({staleness})", staleness=staleness)


def SoftSync(gather: int) -> Consistency:
    """Returns the model in which the mean of every ``gather`` gradients that arrive is one update.

    The gradients may be from any workers, and no worker waits. ``gather=1`` is `Async`. Source:
    Zhang, Gupta, Lian and Liu, arXiv:1511.05950.

    Raises ValueError if ``gather`` is not positive.

    Examples
    --------
    >>> ringcomm.SoftSync(2).gather
    2
    """
    if gather < 1:
        raise ValueError(f"SoftSync({gather}): the number of gradients must be positive")
    return Consistency(f"SoftSync({gather})", gather)


def Sync() -> Consistency:
    """Returns the synchronous model: the mean of all workers' gradients of a step is one update.

    All workers wait for the update. Gradients are added in the order of ranks, so every run gives
    the same bits. The store needs memory for each worker's gradient.

    Examples
    --------
    >>> ringcomm.Sync().of_step
    True
    """
    return Consistency("Sync()", -1, True)


def Backup(first: int) -> Consistency:
    """Returns the synchronous model with backup workers: it uses the first gradients of each step.

    The first ``first`` gradients of a step are applied, and the store drops later ones. The rest is
    as in `Sync`. Source: Chen et al., "Revisiting distributed synchronous SGD", arXiv:1604.00981.

    Raises ValueError if ``first`` is not positive.

    Examples
    --------
    >>> ringcomm.Backup(3).gather
    3
    """
    if first < 1:
        raise ValueError(f"Backup({first}): the number of gradients must be positive")
    return Consistency(f"Backup({first})", first, True)
