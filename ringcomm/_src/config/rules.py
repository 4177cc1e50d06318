"""Reads tuning files: rules that select an algorithm by collective, size and number of ranks.

docs/tuning.md has an example. All ranks use the text of rank 0's file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ringcomm._src.base.sizes import parse_size
from ringcomm._src.config.option_values import read_or_reason, refuse_unread
from ringcomm._src.core import _core

FIELDS = ("collective", "bytes", "ranks", "algorithm", "segment")
LARGEST = (1 << 63) - 1


def read(text: str) -> str:
    """Returns the rules of a file, or rules that were read before, as a text (see read_or_reason)."""
    return read_or_reason(text, _checked)


def _checked(text: str) -> str:
    if not text.startswith(("[", "{")) and text:
        text = json.dumps(json.loads(Path(text).read_text(encoding="utf-8")))
    parse(text)
    return text


def parse(text: str) -> list[_core.Rule]:
    """Parses the text that `read` returned; "" has no rules.

    Raises ValueError if the file cannot be used.
    """
    refuse_unread("RINGCOMM_TUNING_FILE", text)
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
