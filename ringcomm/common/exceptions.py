"""The exceptions that scripts for Horovod import.

Exceptions that are specific to ringcomm are in `ringcomm.errors`.
"""

from ringcomm._src.base.horovod_exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]
