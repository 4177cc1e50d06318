"""Derives methods from other methods, with a signature and docstring for help() and editors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from ringcomm._src.arrays.handles import Handle

P = ParamSpec("P")
Self = TypeVar("Self")
Result = TypeVar("Result")
Form = TypeVar("Form", bound=Callable[..., Any])


def with_signature_of(form: Form, call: Callable[..., Any], name: str, doc: str, result: str) -> Form:
    """Gives `form` the arguments of `call`, a qualified name, a docstring and a result type."""
    functools.update_wrapper(form, call)
    form.__name__, form.__qualname__, form.__doc__ = name.rpartition(".")[2], name, doc
    form.__signature__ = inspect.signature(call).replace(return_annotation=result)  # type: ignore[attr-defined]
    return form


def blocking_form(
    call: Callable[Concatenate[Self, P], Handle[Result]], doc: str, result: str
) -> Callable[Concatenate[Self, P], Result]:
    """Returns the blocking form of a method whose name contains ``_async``."""

    def wait(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return call(self, *args, **kwargs).wait()

    return with_signature_of(wait, call, call.__qualname__.replace("_async", ""), doc, result)
