"""Finds ringcomm's errors inside the errors that a framework's compiled program raises.

Frameworks use this form of `run`, so that elastic training recognises the loss of a rank.
"""

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
    """Decorates as `running.run` does. Errors of `kinds` become the error that their text names."""

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
