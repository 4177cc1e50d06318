"""Values of options as people write them. Each function raises ValueError for what it does not understand."""

from __future__ import annotations

from ringcomm import affinity


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


def parse_gpu_path(text: str) -> str:
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


def parse_trace(text: str) -> str:
    """Horovod's "DYNAMIC" stands for a timeline that the program starts itself."""
    return "" if text == "DYNAMIC" else text
