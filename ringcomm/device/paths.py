"""By which ways the bytes of GPU arrays can travel here, and why not by the others: what `ringcomm info` shows, and the
one place where a way is listed."""

from __future__ import annotations

from typing import NamedTuple

from ringcomm.device import devices


class Path(NamedTuple):
    """A way, or why it is none here."""

    name: str
    what: str
    why_not: str  # "": it can run

    @property
    def available(self) -> bool:
        return not self.why_not


_NOT_YET = "this version does not have it"


def listed() -> list[Path]:
    """All of them, best first. Looks for the driver."""
    _, why_not = devices.found()
    return [
        Path("nccl", "NVIDIA's library, where every rank owns a GPU", why_not or _NOT_YET),
        Path("ipc", "ranks of a host map each other's arrays", why_not or _NOT_YET),
        Path("aware", "an MPI that takes addresses of GPUs", why_not or _NOT_YET),
        Path("staging", "by way of the host's memory, in segments", why_not),
    ]


def chosen() -> str:
    """What calls on GPU arrays run by; "" if there is no GPU."""
    return next((path.name for path in listed() if path.available), "")
