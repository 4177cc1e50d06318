"""Reads tuning files: rules that select an algorithm by collective, size and number of ranks.

docs/tuning.md has an example. Rank 0 reads the file, and all ranks get its text with the options.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ringcomm._src.base.sizes import parse_size
from ringcomm._src.core import _core

FIELDS = ("collective", "bytes", "ranks", "algorithm", "segment")
LARGEST = (1 << 63) - 1
_UNREAD = "!"  # prefix of the message that `read` returns for a file that cannot be used


def read(file: str) -> str:
    """Returns the rules of a file as a text.

    If the file cannot be used, returns a text with the reason. `parse` then raises it on every
    rank, after the ranks have exchanged their options.
    """
    try:
        text = json.dumps(json.loads(Path(file).read_text(encoding="utf-8")))
        parse(text)
    except (OSError, ValueError) as error:
        return f"{_UNREAD}{file}: {error}"
    return text


def parse(text: str) -> list[_core.Rule]:
    """Parses the text that `read` returned; "" has no rules.

    Raises ValueError if the file cannot be used.
    """
    if text.startswith(_UNREAD):
        raise ValueError(f"RINGCOMM_TUNING_FILE={text.removeprefix(_UNREAD)}")
    document = json.loads(text) if text else []
    entries = document.get("rules") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise ValueError('expected a list of rules, or {"rules": [...]}')
    return [_rule(entry, index) for index, entry in enumerate(entries)]


def _rule(entry: Any, index: int) -> _core.Rule:
    where = f"rule {index + 1}"
    if not isinstance(entry, dict) or set(entry) - set(FIELDS):
        raise ValueError(f"{where} must be an object with no other fields than {', '.join(FIELDS)}: {entry}")
    collective, algorithm = entry.get("collective", "allreduce"), entry.get("algorithm", "")
    if collective not in _core.COLLECTIVES:
        raise ValueError(f"{where}: unknown collective {collective!r}; known: {', '.join(_core.COLLECTIVES)}")
    try:
        _core.check_algorithm(collective, str(algorithm))
        segment = parse_size(str(entry["segment"])) if "segment" in entry else 0
        from_bytes, to_bytes = _range(entry.get("bytes", "-"))
        from_ranks, to_ranks = _range(entry.get("ranks", "-"))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return _core.Rule(collective, from_bytes, to_bytes, from_ranks, min(to_ranks, (1 << 31) - 1), algorithm, segment)


def _range(value: Any) -> tuple[int, int]:
    """Parses a range: "64K-1M", "64K-", "-1M", "4K" or 4096. Both ends are included."""
    low, dash, high = str(value).partition("-")
    first = parse_size(low) if low.strip() else 0
    if not dash:
        return first, first
    return first, parse_size(high) if high.strip() else LARGEST
