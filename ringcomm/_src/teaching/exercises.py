"""Grades the exercises of the notebooks in examples/teaching."""

from __future__ import annotations

from typing import Any

from ringcomm._src.teaching.programs import PROGRAMS
from ringcomm._src.teaching.schedules import SCHEDULES, check_schedule
from ringcomm._src.teaching.verdict import Verdict, draw


def exercises() -> dict[str, str]:
    """Returns the tasks of all exercises, by name.

    Returns
    -------
    dict[str, str]
        The text of the task, by the name that :func:`check` takes.

    Examples
    --------
    >>> print(ringcomm.teaching.exercises()["butterfly"])
    Write recursive doubling for p = 2, 4, 8, 16: log2(p) rounds.
    """
    return {name: task for name, (task, _) in (*SCHEDULES.items(), *PROGRAMS.items())}


def check(exercise: str, answer: Any, drawn: bool = False) -> Verdict:
    """Grades an answer to an exercise.

    A schedule is proved for several numbers of ranks, with the proof of
    :func:`ringcomm.register_algorithm`, and its cost is compared with that of the textbook's
    algorithm. A function is run on test data; some are run on ranks that are threads. A number must
    be correct to 1 %.

    Parameters
    ----------
    exercise : str
        Name of the exercise; :func:`exercises` lists them with their tasks.
    answer : Any
        A function of ``(rank, size)`` that returns rounds of steps, as in
        ``docs/writing-an-algorithm.md``, or the value or function that the task asks for.
    drawn : bool
        True: the verdict on a correct schedule has a drawing for 4 ranks, which needs matplotlib.
        Default False.

    Returns
    -------
    Verdict
        Whether the answer is correct, and the reason if it is not.

    Raises
    ------
    ValueError
        There is no exercise of this name.

    Examples
    --------
    >>> from ringcomm.algorithms import reduce, send
    >>> def butterfly(rank, size):
    ...     peers = [rank ^ 1 << k for k in range(size.bit_length() - 1)]
    ...     return [[send(peer, 0), reduce(peer, 0)] for peer in peers]
    >>> ringcomm.teaching.check("butterfly", butterfly).text.split("; ")
    ['Proved on 2, 4, 8, 16 ranks',
     'on 16 ranks it has 4 rounds, and each rank sends at most 4 messages and 4 S']
    >>> ringcomm.teaching.check("ring_bytes", 4e6).correct
    False
    """
    if exercise not in SCHEDULES and exercise not in PROGRAMS:
        raise ValueError(f"there is no exercise {exercise!r}; known: {', '.join(exercises())}")
    try:
        if exercise in PROGRAMS:
            why = PROGRAMS[exercise][1](answer)
            return Verdict(exercise, not why, why)
        why, cost = check_schedule(answer, SCHEDULES[exercise][1])
    except Exception as error:  # raised by the answer, or by the proof
        text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return Verdict(exercise, False, text)
    if why:
        return Verdict(exercise, False, why)
    return Verdict(exercise, True, cost, draw(answer) if drawn else None)
