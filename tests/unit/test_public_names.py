"""The public interface equals public_names.txt, so that its changes are deliberate."""

from __future__ import annotations

import pytest
from public_names import LIST, found, imported, listed, module_names

FOUND, LISTED = found(), listed()


@pytest.mark.parametrize("name", module_names())
def test_public_names(name: str) -> None:
    if name not in FOUND:
        pytest.skip("its framework is not installed")
    change = f"If this change of the public interface is meant: python {LIST.with_name('public_names.py')}"
    assert FOUND[name] == LISTED.get(name), change


def test_every_listed_module_exists() -> None:
    assert set(LISTED) == set(module_names())


@pytest.mark.parametrize("name", module_names())
def test_all_is_all(name: str) -> None:
    """`__all__` names only what exists."""
    module = imported(name)
    if module is not None:
        assert not [one for one in module.__all__ if not hasattr(module, one)]
