"""Runs a drawn script with a binding and with its reference, and compares noted values."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import time
import traceback
import warnings
from typing import Any, NamedTuple

import mpi_case
import numpy as np

import ringcomm

REFUSALS = (ringcomm.HorovodInternalError, AssertionError, ValueError, TypeError, NotImplementedError)
LATE = 10.0  # seconds that a rank waits for the other ranks to finish the script

_comm: ringcomm.Communicator | None = None  # for verdicts
_plain_comm: ringcomm.Communicator | None = None  # for the references


class Run(NamedTuple):
    seen: list[tuple[str, Any]]
    error: str  # type's name; empty: none
    line: int  # line of the script
    text: str  # text of the error
    refusal: bool  # True if ringcomm raised it, with a type that refusals have


NAMED = re.compile(r"\b(Mismatch|Value|NotImplemented|RankLeft|PeerLost)Error:.*")


def is_refusal(error: Exception, failures: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, failures) and not isinstance(error, REFUSALS):
        return NAMED.search(str(error)) is not None
    frames = traceback.extract_tb(error.__traceback__)
    return any("/ringcomm/" in frame.filename for frame in frames) and isinstance(error, REFUSALS)


def run(text: str, hvd: Any, binding: Any) -> Run:
    user = binding.User(hvd)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, "<script>", "exec"), user.names())
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = max((frame.lineno or 0 for frame in frames if frame.filename == "<script>"), default=0)
        whole = "".join(traceback.format_exception(error)[-6:])
        refusal = is_refusal(error, binding.FAILURES)
        named = NAMED.search(str(error))
        said = named[0] if named and isinstance(error, binding.FAILURES) else str(error)
        return Run(user.seen, type(error).__name__, line, f"{said}\n{whole}", refusal)
    return Run(user.seen, "", 0, "", False)


def difference(seen: list[tuple[str, Any]], wanted: list[tuple[str, Any]], rtol: float) -> str:
    """Returns the first difference; empty if there is none. `rtol`: relative tolerance."""
    for number, ((name, value), (other, right)) in enumerate(zip(seen, wanted, strict=False)):
        if name != other:
            return f"entry {number}: {name} instead of {other}"
        if isinstance(value, np.ndarray) and isinstance(right, np.ndarray):
            if (value.dtype, value.shape) != (right.dtype, right.shape):
                kinds = f"{value.dtype}{value.shape} instead of {right.dtype}{right.shape}"
                return f"entry {number}: {name} is not close: {kinds}"
            # small values are sums of values of this magnitude
            largest = np.max(np.abs(right), initial=1, where=np.isfinite(right))
            close = np.allclose(value, right, rtol=rtol, atol=rtol / 100 * largest, equal_nan=True)
            if not close:
                return f"entry {number}: {name} is not close: {value.ravel()[:6]} instead of {right.ravel()[:6]}"
        elif type(value) is not type(right) or value != right:
            return f"entry {number}: {name}: {value} instead of {right}"
    return ""


def exchanged(comm: ringcomm.Communicator, item: Any) -> list[Any]:
    """Returns the items of all ranks. Raises TimeoutError if an item does not arrive."""
    data = np.zeros(4096, np.uint8)
    encoded = json.dumps(item).encode()[:4096]
    data[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    handle = comm.iallgather(data)
    deadline = time.monotonic() + LATE
    while not handle.test():
        if time.monotonic() > deadline:
            raise TimeoutError("the others have not ended the script")
        time.sleep(0)
    return [json.loads(bytes(row).rstrip(b"\0")) for row in handle.wait().reshape(comm.size, -1)]


def reference(text: str, binding: Any, comm: ringcomm.Communicator) -> Run:
    """Runs the script with the reference. Raises AssertionError if it fails on some ranks only.

    A rank that fails closes the reference's communicator, so that the other ranks do not wait for
    it.
    """
    global _plain_comm
    if _plain_comm is None:
        _plain_comm = ringcomm.Communicator()
    made = run(text, binding.Plain(_plain_comm), binding)
    if made.error:
        _plain_comm._abandon("the script has failed")
    texts = exchanged(comm, made.error and f"{made.error} in line {made.line}: {made.text[:600]}")
    if any(texts):
        _plain_comm._abandon("the script has failed on another rank")
        _plain_comm = None
    failed = {rank: text for rank, text in enumerate(texts) if text and "RankLeftError" not in text}
    assert len(failed) in (0, comm.size), f"invalid: the script itself fails on some ranks only: {failed}"
    return made


def judge(text: str, name: str = "torch", mutant: str = "") -> None:
    """Prints the verdict of all ranks (`right`, `refused` or `fault`) and the reason.

    `name`: the binding. `mutant`: the mutant to judge in place of the binding.
    """
    global _comm
    binding = importlib.import_module(f"binding_{name}")
    if _comm is None:
        _comm = ringcomm.Communicator()
    wanted = reference(text, binding, _comm)
    binding.product.init()
    judged = binding.mutated(mutant, binding.Plain(_comm)) if mutant else contextlib.nullcontext(binding.product)
    with judged as hvd:
        made = run(text, hvd, binding)
    compared = ""
    if not made.error or made.refusal:
        compared = difference(made.seen, wanted.seen, binding.tolerance(text))
    if not made.error and not wanted.error and len(made.seen) != len(wanted.seen):
        compared = compared or f"{len(made.seen)} entries instead of {len(wanted.seen)}"
    mine = (made.error, made.line, made.text[:900], made.refusal, compared[:600], wanted.error, wanted.text[:300])
    try:
        all_ranks = exchanged(_comm, mine)
    except TimeoutError:
        mpi_case.say(f"fault: rank {_comm.rank} ended with {made.error or 'no error'} in line {made.line}: {made.text}")
        mpi_case.say("the others have not ended the script")
        raise
    if _comm.rank == 0:
        alone = "process_set=" in text and _comm.size > 2  # rank 0 is outside of the set
        mpi_case.say(json.dumps(verdict(all_ranks[1:] if alone and not all_ranks[0][0] else all_ranks)))
    # shutdown removes the sets, and whatever an error left
    if "process_set" in text or any(one[0] for one in all_ranks):
        binding.product.shutdown()


def beginning(text: str) -> str:
    """Returns the beginning of the text without numbers, which may be addresses."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "", text.split("\n")[0])[:100]


def verdict(ranks: list[Any]) -> tuple[str, str]:
    errors = {error for error, *_ in ranks}
    plain = {one[5] for one in ranks}
    for rank, (_, _, _, _, compared, _, _) in enumerate(ranks):
        if compared:
            return "fault", f"rank {rank}: {compared}"
    if errors == {""}:
        return ("right", "") if plain == {""} else ("fault", f"the reference alone fails: {ranks[0][5:]}")
    said = "\n".join(f"rank {rank}, line {one[1]}: {one[0]}: {one[2]}" for rank, one in enumerate(ranks))
    if "" in errors:
        return "fault", f"on some ranks only: {said}"
    if plain == errors and beginning(ranks[0][2]) == beginning(ranks[0][6]):
        return "refused", f"as by the framework: {ranks[0][2]}"
    return ("refused" if all(one[3] for one in ranks) else "fault"), said
