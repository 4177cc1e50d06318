"""Parses values of options for config.py. Each function raises ValueError for an invalid text."""

from __future__ import annotations

from collections.abc import Callable

from ringcomm._src.base import affinity

_UNREAD = "!"  # begins the text of an option that cannot be used


def parse_flag(text: str) -> bool:
    value = text.strip().lower()
    if value in ("1", "on", "true", "yes"):
        return True
    if value in ("0", "off", "false", "no", ""):
        return False
    raise ValueError("expected on or off")


def parse_switch(text: str) -> str:
    value = text.strip().lower()
    if value == "auto":
        return "auto"
    return "on" if parse_flag(value) else "off"


def parse_gpu_route(text: str) -> str:
    value = text.strip().lower()
    if value not in ("auto", "staging", "aware", "levels", "ipc", "nccl"):
        raise ValueError("expected auto, staging, aware, levels, ipc or nccl")
    return value


def parse_cores(text: str) -> str:
    affinity.cores(text)
    return text


def parse_level(text: str) -> str:
    value = {"trace": "debug", "warn": "warning", "fatal": "critical"}.get(text.strip().lower(), text.strip().lower())
    if value not in ("debug", "info", "warning", "error", "critical"):
        raise ValueError("expected debug, info, warning, error or critical")
    return value


REPLICA_CHECK_EVERY = 1000  # default number of steps between two checks


def replica_check(text: str) -> tuple[str, int]:
    """Parses a value of the option to ("warn" or "error", steps between checks; 0: no checks)."""
    value = text.strip().lower()
    mode, _, number = value.partition(":")
    if value.isdecimal():
        mode, number = "warn", value
    if mode in ("warn", "error") and (not number or number.isdecimal()):
        return mode, int(number) if number else REPLICA_CHECK_EVERY
    if not number and mode not in ("1", "on", "true", "yes") and not parse_flag(mode):
        return "warn", 0
    raise ValueError("expected warn, error, off, a number of steps, warn:STEPS or error:STEPS")


def parse_replica_check(text: str) -> str:
    replica_check(text)
    return text.strip().lower()


def parse_trace(text: str) -> str:
    """Returns the file; "" for Horovod's "DYNAMIC": the program starts the timeline later."""
    return "" if text == "DYNAMIC" else text


def read_or_reason(text: str, read: Callable[[str], str]) -> str:
    """Returns ``read(text)``, or, if it fails, a text with the reason for `refuse_unread`.

    Options are read before the ranks exchange them. An error on one rank would leave the others
    waiting.
    """
    if is_unread(text):
        return text
    try:
        return read(text)
    except Exception as error:
        return f"{_UNREAD}{text}: {error}"


def is_unread(text: object) -> bool:
    """Returns whether a value of an option is the reason why it cannot be used."""
    return isinstance(text, str) and text.startswith(_UNREAD)


def refuse_unread(variable: str, text: str) -> None:
    """Raises ValueError, on every rank, if `text` has the reason why an option cannot be used."""
    if is_unread(text):
        raise ValueError(f"{variable}={text.removeprefix(_UNREAD)}")
