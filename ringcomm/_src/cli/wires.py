"""Parses the names of wire formats in options of bench and simulate."""

from __future__ import annotations

import argparse
from typing import Any

from ringcomm._src.base.ops import wire_code
from ringcomm._src.compression.compression import Compression
from ringcomm._src.core import _core

FLOAT32 = _core.DTYPES.index("float32")
FIRST = {  # format -> its first parameter
    **{"int8": "group", "int4": "group", "onebit": "group", "ternary": "threshold"},
    **{"topk": "ratio", "threshold": "tau"},
}
USED = tuple(name for name in _core.wire_formats() if _core.wire_ratio(_core.wire_code(name), FLOAT32) < 1)


def parse_wire(text: str) -> Any:
    """Parses "bfloat16", "int8" or "topk:0.001" (a first parameter) to a value for ``wire=``.

    Raises
    ------
    argparse.ArgumentTypeError
        The format is unknown, or its parameter is invalid.
    """
    name, _, amount = text.partition(":")
    try:
        wire_code(name)
        wire = getattr(Compression, name, None)
        if wire is None:
            return name
        return wire(type(getattr(wire, FIRST[name]))(amount)) if amount else wire
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def wire_names(text: str) -> list[str]:
    """Parses names separated by commas, or "all", to a list of names that `parse_wire` accepts."""
    names = list(USED) if text == "all" else text.split(",")
    for name in names:
        parse_wire(name)
    return names
