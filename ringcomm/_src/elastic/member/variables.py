"""States of models that are lists of variables, to which values are assigned in place.

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
        return {"attributes": super().contents(), "variables": [self.value_of(variable) for variable in self.tracked()]}

    def put_back(self, contents: Any) -> None:
        """Assigns the values. Raises ValueError if the values do not fit the variables."""
        variables, values = self.tracked(), contents["variables"]
        if len(variables) != len(values):
            raise ValueError(f"the saved state has {len(values)} variables, and the model has {len(variables)}")
        for variable, value in zip(variables, values, strict=True):
            if tuple(variable.shape) != tuple(value.shape):
                raise ValueError(
                    f"variable {_name(variable)} was saved with shape {tuple(value.shape)}, "
                    f"but has shape {variable.shape}"
                )
        super().put_back(contents["attributes"])
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def sync(self) -> None:
        self.broadcast(self.tracked())
        super().put_back(self._bcast_object(super().contents(), 0))
        self.save()


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)
