"""The installed version of ringcomm."""

from __future__ import annotations

import importlib.metadata

try:
    __version__ = importlib.metadata.version("ringcomm")
except importlib.metadata.PackageNotFoundError:  # imported from a source tree that is not installed
    __version__ = "0+unknown"
