"""The exceptions that scripts written for Horovod import; `ringcomm.errors` has the others."""

from __future__ import annotations

from ringcomm._src.base.errors import HorovodInternalError

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed.

    A state's `commit` and `check_host_updates` raise it on all ranks, and `elastic.run` catches it.
    ``skip_sync`` exists for compatibility with Horovod and is always False.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    return f"{name} has version {version}, but version {installed_version} is expected"


class HorovodVersionMismatchError(ImportError):
    """A framework's version differs from the version that a binding was built for.

    Ringcomm never raises it: its bindings are not built for one version.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version
