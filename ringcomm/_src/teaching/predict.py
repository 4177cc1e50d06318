"""Predicts the time of each all-reduce algorithm with the alpha-beta model."""

from __future__ import annotations

from ringcomm._src.core import _core


def predict(
    ranks: int, nbytes: int, *, alpha: float, beta: float, gamma: float = 0.0, algorithm: str = ""
) -> dict[str, float]:
    """Predicts the time of an all-reduce by each built-in algorithm, with each rank on its host.

    A message of n bytes takes ``alpha + beta * n`` seconds. A rank sends one message at a time, so
    k messages of a round take k times alpha. The data is sent in one segment. ``ringcomm simulate``
    predicts more: segments, several ranks on a host, and the other collectives.

    Parameters
    ----------
    ranks : int
        Number of ranks, for example 2**20. They need not exist.
    nbytes : int
        Size of each rank's buffer, in bytes.
    alpha : float
        Latency of a message, in seconds.
    beta : float
        Seconds per byte sent.
    gamma : float
        Seconds per byte reduced; default 0.
    algorithm : str
        Name of an algorithm; default: all.

    Returns
    -------
    dict[str, float]
        The time in seconds by name, fastest first.

    Raises
    ------
    ValueError
        There is no algorithm of this name, or a number is not valid.

    Examples
    --------
    >>> times = ringcomm.teaching.predict(4, 1000, alpha=1e-5, beta=1e-9)
    >>> next(iter(times))
    'butterfly_doubling'
    >>> round(times["ring"] * 1e6, 1)  # 6 alpha + 1.5 S beta
    61.5
    """
    if ranks < 1 or nbytes < 0:
        raise ValueError(f"predict: ranks must be at least 1 and nbytes at least 0; got {ranks} and {nbytes}")
    network = _core.Network(alpha, beta, alpha, 0.0, alpha, beta, gamma, 0.0)
    menu = _core.Menu("allreduce", ranks, None, network)
    found = menu.options(algorithm, nbytes, segment=max(nbytes, 1), window=1)
    return {option.name: option.price.seconds for option in sorted(found, key=lambda option: option.price.seconds)}
