"""The result of a graded exercise, and drawings of algorithms for notebooks."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringcomm._src.algorithms.registry import Algorithm, registered
from ringcomm._src.base.installed import missing_message
from ringcomm._src.core import _core


@dataclass(frozen=True)
class Drawing:
    """A picture of an algorithm. A notebook shows it.

    Attributes
    ----------
    svg : str
        The picture in SVG format.

    Examples
    --------
    >>> ringcomm.teaching.Drawing("<svg></svg>").svg
    '<svg></svg>'
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Verdict:
    """The grade of an answer. Its truth value is `correct`; a notebook shows its text and drawing.

    Attributes
    ----------
    exercise : str
        Name of the exercise.
    correct : bool
        True if the answer is correct.
    text : str
        The reason, and the cost of a correct schedule.
    drawing : Drawing | None
        Picture of a correct schedule, if :func:`check` was called with ``drawn=True``.

    Examples
    --------
    >>> verdict = ringcomm.teaching.check("ring_bytes", 7e6)
    >>> verdict.correct, bool(verdict)
    (True, True)
    >>> verdict
    ring_bytes: correct
    """

    exercise: str
    correct: bool
    text: str = ""
    drawing: Drawing | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.correct

    def __repr__(self) -> str:
        grade = f"{self.exercise}: {'correct' if self.correct else 'not correct'}"
        return f"{grade}. {self.text}" if self.text else grade

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.drawing.svg if self.drawing else ''}"


def draw(algorithm: str | Callable[[int, int], Any], ranks: int = 4) -> Drawing:
    """Draws an all-reduce algorithm, as ``ringcomm show --output`` does. Needs matplotlib.

    Parameters
    ----------
    algorithm : str | Callable[[int, int], Any]
        Name of a built-in or registered algorithm, or a function of ``(rank, size)`` that returns
        rounds of steps.
    ranks : int
        Number of ranks; default 4.

    Returns
    -------
    Drawing
        The picture.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        The algorithm is unknown, or does not compute an all-reduce.

    Examples
    --------
    >>> ringcomm.teaching.draw("ring", 4).svg[:5]
    '<?xml'
    """
    if trouble := missing_message("matplotlib", "ringcomm.teaching.draw"):
        raise ImportError(trouble)
    from ringcomm._src.cli.compact import figure_of

    schedules = schedules_of(algorithm, ranks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.svg"
        figure_of(schedules, range(len(schedules[0].rounds)), None, None).savefig(path)
        return Drawing(path.read_text(encoding="utf-8"))


def schedules_of(algorithm: str | Callable[[int, int], Any], ranks: int) -> list[_core.Schedule]:
    """Returns the schedules of all ranks. Raises ValueError if a custom one is not proved."""
    if callable(algorithm):
        name = getattr(algorithm, "__name__", "answer")
        return Algorithm(name, "allreduce", algorithm, None, ()).schedules(ranks)
    custom = registered("allreduce", algorithm)
    if custom is not None:
        return custom.schedules(ranks)
    return [_core.schedule("allreduce", algorithm, rank, ranks) for rank in range(ranks)]
