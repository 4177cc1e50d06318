"""Provides one cluster for the tests of a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[slurm_cluster.Cluster]:
    """Yields a cluster of three nodes. An optional parameter is its argument `tracking`."""
    if slurm_cluster.missing():
        pytest.skip(slurm_cluster.missing())
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        made = slurm_cluster.Cluster(Path(folder), 3, 4, getattr(request, "param", "linuxproc"))
        try:
            yield made
        finally:
            made.close()
