"""Computes Adasum (Maleki et al., arXiv:2006.02924) in plain NumPy, as a reference for tests.

It pairs ranks as the butterfly algorithm does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pair(a: Array, b: Array) -> Array:
    """Combines two vectors; rounds the result to the dtype of `a`, as exchanged data is."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    ab, aa, bb = (float(np.dot(u.ravel(), v.ravel())) for u, v in ((x, y), (x, x), (y, y)))
    by_x = 1.0 if aa == 0 else 1.0 - ab / aa / 2
    by_y = 1.0 if bb == 0 else 1.0 - ab / bb / 2
    return (by_x * x + by_y * y).astype(a.dtype)


def adasum(vectors: list[Array]) -> Array:
    """Returns the Adasum of one vector per rank.

    Among 2^k + r ranks, the first 2r are paired with their neighbours. Then positions that differ
    in bit 0, bit 1, ... are paired.
    """
    core = 1 << (len(vectors).bit_length() - 1)
    rest = len(vectors) - core
    places = [pair(vectors[2 * i], vectors[2 * i + 1]) for i in range(rest)] + vectors[2 * rest :]
    distance = 1
    while distance < core:
        places = [pair(places[min(i, i ^ distance)], places[max(i, i ^ distance)]) for i in range(core)]
        distance *= 2
    return places[0]
