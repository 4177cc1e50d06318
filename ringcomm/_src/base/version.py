"""The installed version."""

from __future__ import annotations

import importlib.metadata

try:
    __version__ = importlib.metadata.version("ringcomm")
except importlib.metadata.PackageNotFoundError:  # a source tree on the path
    __version__ = "0+unknown"
