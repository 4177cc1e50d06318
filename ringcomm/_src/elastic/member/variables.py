"""States of models that are lists of variables, which keep their identity when values are assigned to them.

The states of the frameworks derive from `VariablesState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ringcomm._src.elastic.member.state import ObjectState


class VariablesState(ObjectState, ABC):
    """A state of variables that have a shape, a dtype and `assign`, and of further attributes."""

    # ---- for subclasses ----------------------------------------------------------------------------------------------
    @abstractmethod
    def tracked(self) -> Sequence[Any]:
        """Returns the variables, in an order that is the same in every process."""

    @abstractmethod
    def value_of(self, variable: Any) -> Any:
        """Returns a tensor that `packing` copies without an intermediate copy."""

    @abstractmethod
    def broadcast(self, variables: Sequence[Any]) -> None:
        """Assigns the values of rank 0 to the variables."""

    # ---- of states ---------------------------------------------------------------------------------------------------
    def contents(self) -> Any:
        return {"attributes": super().contents(), "variables": [self.value_of(one) for one in self.tracked()]}

    def put_back(self, contents: Any) -> None:
        """Assigns the values. Raises ValueError if they are of other variables."""
        variables, values = self.tracked(), contents["variables"]
        if len(variables) != len(values):
            raise ValueError(f"{len(values)} variables were kept, and there are {len(variables)}")
        for one, value in zip(variables, values, strict=True):
            if tuple(one.shape) != tuple(value.shape):
                raise ValueError(f"variable {_name(one)} was kept with shape {tuple(value.shape)}, not {one.shape}")
        super().put_back(contents["attributes"])
        for one, value in zip(variables, values, strict=True):
            one.assign(value)

    def sync(self) -> None:
        self.broadcast(self.tracked())
        super().put_back(self._bcast_object(super().contents(), 0))
        self.save()


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)
