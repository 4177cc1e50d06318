"""Where ranks run: hosts and how many ranks each takes."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Host(NamedTuple):
    """A host and the number of ranks that it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """'a:2,b' -> [Host('a', 2), Host('b', 1)]. IPv6 addresses with slots stand in brackets: '[::1]:2'.

    Raises ValueError for an empty name or a count that is none.
    """
    return _merged(_parse_host(part.strip()) for part in text.split(",") if part.strip())


def read_hostfile(path: str | Path) -> list[Host]:
    """One host a line: 'a slots=2' (Horovod, Open MPI), 'a:2' (MPICH), or 'a' alone; '#' starts a comment.

    Raises OSError, or ValueError naming the line that is neither.
    """
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _parse_host(words[0])
            for word in words[1:]:
                key, _, value = word.partition("=")
                if key == "slots":
                    host = host._replace(slots=_count(value))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        found.append(host)
    return _merged(found)


def discover(
    script: str,
    slots: int | None = None,
    limit: float | None = None,
    may_be_none: bool = False,
    started: Callable[[subprocess.Popen[str]], None] | None = None,
) -> list[Host]:
    """What a script for Horovod's --host-discovery-script prints: 'a:2' or 'a' a line. It is run once.

    `started` is called with its process. Raises ValueError if it fails, or names no host and may not; TimeoutExpired
    after `limit` seconds.
    """
    process = subprocess.Popen(shlex.split(script), stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        if started is not None:
            started(process)
        try:
            said, _ = process.communicate(timeout=limit)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ValueError(f"the host discovery script ended with exit status {process.returncode}: {script}")
    found = []
    for line in said.split():
        host = _parse_host(line)
        found.append(host._replace(slots=slots) if slots and host.name == line else host)
    if not found and not may_be_none:
        raise ValueError(f"the host discovery script named no host: {script}")
    return _merged(found)


def _parse_host(text: str) -> Host:
    name, colon, count = text.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, count = text, "1"
    name = name.removeprefix("[").removesuffix("]")
    if not name or any(letter.isspace() or letter in ",=" for letter in name):
        raise ValueError(f"{text!r} is no host such as 'name' or 'name:2'")
    return Host(name, _count(count))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is no number of ranks")
    return int(text)


def _merged(hosts: Iterable[Host]) -> list[Host]:
    """A host that is named twice takes the sum, at its first place."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(*item) for item in slots.items()]


def place(hosts: Sequence[Host], size: int) -> list[Host]:
    """The hosts that `size` ranks use, filled in order, with the number of ranks on each.

    Raises ValueError if there are fewer slots than ranks.
    """
    used, left = [], size
    for host in hosts:
        if left > 0:
            used.append(Host(host.name, min(host.slots, left)))
            left -= used[-1].slots
    if left > 0:
        room = sum(host.slots for host in hosts)
        raise ValueError(
            f"{size} ranks were asked for, but the hosts have room for {room}: give more slots, as in -H name:{size}"
        )
    return used


def describe_ranks(ranks: Iterable[int], hosts: Sequence[Host]) -> str:
    """Returns the hosts of some ranks and why a host cannot be reached, if that is known: 'ranks 0, 1 on a; rank 2 on
    b, a name that no address is known for'. `hosts` are filled in order; without them only the ranks are listed."""
    host_of = [host.name for host in hosts for _ in range(host.slots)]
    placed: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        placed.setdefault(host_of[rank] if rank < len(host_of) else "", []).append(rank)
    parts = []
    for host, some in placed.items():
        where = f" on {host}{'' if _has_address(host) else ', a name that no address is known for'}" if host else ""
        parts.append(f"rank{'s' * (len(some) > 1)} {', '.join(map(str, some))}{where}")
    return "; ".join(parts)


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # the latter for what can be no name
        return False


def is_local(name: str) -> bool:
    """Whether a host's name means this machine."""
    if name in ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0]):
        return True
    with contextlib.suppress(OSError, UnicodeError):
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address[0], 0))  # only an address of this machine can be bound
                return True
    return False
