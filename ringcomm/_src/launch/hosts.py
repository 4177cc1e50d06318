"""Parses lists of hosts (texts, files, discovery scripts) and distributes ranks over them."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Host(NamedTuple):
    """A host, and its slots: the number of ranks that may run on it."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """Parses a list of hosts: 'a:2,b' -> [Host('a', 2), Host('b', 1)].

    An IPv6 address with slots is written in brackets: '[::1]:2'. Raises ValueError if a name is
    empty or a number of slots is invalid.
    """
    return _merged(_parse_host(part.strip()) for part in text.split(",") if part.strip())


def read_hostfile(path: str | Path) -> list[Host]:
    """Reads a hostfile: one host a line, 'a slots=2' (Horovod, Open MPI), 'a:2' (MPICH), or 'a'.

    '#' starts a comment. Raises OSError, or ValueError that names an invalid line.
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
    """Runs the script of --host-discovery-script once and returns the hosts that it prints.

    It prints one host a line: 'a:2' or 'a'.

    Parameters
    ----------
    script : str
        The command.
    slots : int | None
        Slots of hosts that the script prints without a number.
    limit : float | None
        Timeout in seconds.
    may_be_none : bool
        If True, the script may print no host.
    started : Callable[[subprocess.Popen[str]], None] | None
        Called with the process of the script.

    Raises
    ------
    ValueError
        The script fails, prints an invalid line, or prints no host although it must.
    subprocess.TimeoutExpired
        The timeout has passed.
    """
    process = subprocess.Popen(shlex.split(script), stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        if started is not None:
            started(process)
        try:
            output, _ = process.communicate(timeout=limit)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ValueError(f"the host discovery script ended with exit status {process.returncode}: {script}")
    found = []
    for line in output.split():
        host = _parse_host(line)
        found.append(host._replace(slots=slots) if slots and host.name == line else host)
    if not found and not may_be_none:
        raise ValueError(f"the host discovery script printed no host: {script}")
    return _merged(found)


def _parse_host(text: str) -> Host:
    name, colon, count = text.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, count = text, "1"
    name = name.removeprefix("[").removesuffix("]")
    if not name or any(letter.isspace() or letter in ",=" for letter in name):
        raise ValueError(f"{text!r} is not a host: write 'name' or 'name:2'")
    return Host(name, _count(count))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of slots: write an integer of at least 1")
    return int(text)


def _merged(hosts: Iterable[Host]) -> list[Host]:
    """Merges hosts that are named repeatedly: adds their slots, and keeps the first position."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(*item) for item in slots.items()]


def place(hosts: Sequence[Host], size: int) -> list[Host]:
    """Fills hosts in order with `size` ranks. Returns the used hosts; slots: ranks on the host.

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
            f"{size} ranks were requested, but the hosts have room for {room}: give more slots, as in -H name:{size}"
        )
    return used


def describe_ranks(ranks: Iterable[int], hosts: Sequence[Host]) -> str:
    """Describes ranks with their hosts, and marks hosts that are known to be unreachable.

    For example: 'ranks 0, 1 on a; rank 2 on b, a name without a known address'. Ranks fill `hosts`
    in order. If `hosts` is empty, the text lists the ranks only.
    """
    host_of = [host.name for host in hosts for _ in range(host.slots)]
    placed: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        placed.setdefault(host_of[rank] if rank < len(host_of) else "", []).append(rank)
    parts = []
    for host, host_ranks in placed.items():
        where = f" on {host}{'' if _has_address(host) else ', a name without a known address'}" if host else ""
        parts.append(f"rank{'s' * (len(host_ranks) > 1)} {', '.join(map(str, host_ranks))}{where}")
    return "; ".join(parts)


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: not a valid host name
        return False


def is_local(name: str) -> bool:
    """Returns True if `name` names this machine."""
    if name in ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0]):
        return True
    with contextlib.suppress(OSError, UnicodeError):
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address[0], 0))  # only an address of this machine can be bound
                return True
    return False
