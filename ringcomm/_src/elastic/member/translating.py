"""Losses that come out of a framework's compiled programs as the framework's own errors."""

from __future__ import annotations

import functools
import re
from typing import Any, cast

from ringcomm._src.base.errors import PeerLostError, RankLeftError, ShutDownError, TransportError
from ringcomm._src.elastic.member import running
from ringcomm._src.elastic.member.running import Function

_LOSSES = {kind.__name__: kind for kind in (PeerLostError, RankLeftError, ShutDownError, TransportError)}
_NAMED = re.compile(rf"\bringcomm\.({'|'.join(_LOSSES)}): (.*)")


def run(func: Function, kinds: type[Exception] | tuple[type[Exception], ...]) -> Function:
    """`running.run`, where errors of these kinds may have one of ours in their text."""

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except kinds as error:
            found = _NAMED.search(str(error))
            if found is None:
                raise
            raise _LOSSES[found[1]](found[2]) from error

    return running.run(cast(Function, translated))
