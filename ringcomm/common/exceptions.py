"""The exceptions that scripts written for Horovod import. Ringcomm's own are in `ringcomm.errors`."""

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
