"""Runs mpi4py's tests of collectives and messages on ringcomm.Communicator, under mpiexec.

    mpiexec -n 2 python mpi4py_suite.py /path/to/mpi4py/test [pattern of module.Class.test ...]

The tests are read from that folder (of mpi4py's source distribution or repository). An adapter
replaces MPI.COMM_WORLD and MPI.COMM_SELF. Prints each failure, the skipped tests by reason, and a
line of totals.
"""

from __future__ import annotations

import collections
import faulthandler
import fnmatch
import importlib
import sys
import time
import types
import unittest
from typing import Any

import mpi4py
import mpi_requests
from mpi4py import MPI
from mpi_communicator import Communicator

import ringcomm

MODULES = {  # modules, and for each a pattern of the tests that call a communicator
    "test_cco_buf": "*",
    "test_cco_nb_buf": "*",
    "test_cco_nb_vec": "*",
    "test_cco_pr_buf": "*",
    "test_cco_pr_vec": "*",
    "test_cco_vec": "*",
    "test_msgspec": "*.TestMessage*",
    "test_msgzero": "*",
    "test_op": "*.testCreate",
    "test_p2p_buf": "*",
}
NOT_EXPRESSIBLE = {  # patterns of names, and the feature that ringcomm does not have
    "*.testBcastTypeIndexed": "derived datatypes",
    "*.testAlltoallwBottom*": "derived datatypes",
    "*.TestReduceLocal.*": "no call of a communicator: MPI.Op.Reduce_local",
    "test_p2p_buf.*.testConstructor": "handles of MPI's requests",
    "test_p2p_buf.*.testProbe": "synchronous sends, of which the test sees that none has been received",
    "test_msgspec.TestMessageRMA.*": "windows",
    "test_msgspec.*.testBuffer": "no call of a communicator: MPI.buffer",
    "test_msgspec.*Bottom": "absolute addresses",
    "test_msgspec.TestMessage[SV]*.testMessageBad": "errors in a specification: the adapter reads it",
    "test_msgspec.*DLPack*": "imitations of device arrays and of DLPack, which the adapter replaces by their memory",
    "test_msgspec.*CAI*": "imitations of device arrays and of DLPack, which the adapter replaces by their memory",
}
DIFFERENT = {  # patterns of names, and what ringcomm does instead, deliberately
    "test_msgspec.*.testNotContiguous": "a strided array is sent as a copy of its elements, where mpi4py refuses it",
    "test_msgspec.*.testByteOrder": "an array of foreign byte order is a TypeError, where mpi4py has a BufferError",
}
# Modules that are not run need features that ringcomm lacks. test_*_inter: intercommunicators;
# test_p2p_buf_matched: matched probes; test_p2p_buf_part: partitioned messages; test_cco_ngh_* and
# test_cco_pr_ngh_*: graphs that name a neighbour twice; test_*_obj: messages of Python objects.
LIMIT = 40.0  # seconds that one test may take before every rank prints its stack


class Substitute(types.ModuleType):
    """mpi4py.MPI with ringcomm's communicators and with requests for them."""

    def __init__(self) -> None:
        super().__init__("MPI")
        self.COMM_WORLD = Communicator(ringcomm.Communicator())
        self.COMM_SELF = Communicator(ringcomm.Communicator(MPI.COMM_SELF))
        self.Request, self.Prequest, self.REQUEST_NULL = mpi_requests.Request, mpi_requests.Prequest, mpi_requests.NULL

    def __getattr__(self, name: str) -> Any:
        return getattr(MPI, name)


def cases(folder: str, substitute: Substitute, patterns: list[str]) -> list[unittest.TestCase]:
    sys.path.insert(0, folder)
    importlib.import_module("arrayimpl")  # needs MPI's datatypes only
    found: list[unittest.TestCase] = []
    mpi4py.MPI = substitute  # the result of `from mpi4py import MPI` in the tests
    try:
        for name, wanted in MODULES.items():
            module = importlib.import_module(name)
            for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
                found += [case for case in suite if fnmatch.fnmatch(case.id(), wanted)]  # type: ignore[union-attr]
    finally:
        mpi4py.MPI = MPI
    return [case for case in found if any(fnmatch.fnmatch(case.id(), pattern) for pattern in patterns)]


def run(case: unittest.TestCase) -> tuple[str, str]:
    """Runs one test. Returns the reason of a skip, and the text of a failure; "" for none."""
    for pattern, reason in (NOT_EXPRESSIBLE | DIFFERENT).items():
        if fnmatch.fnmatch(case.id(), pattern):
            return reason, ""
    result = unittest.TestResult()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    case.run(result)
    faulthandler.cancel_dump_traceback_later()
    wrong = "\n".join(text for _, text in result.failures + result.errors)
    return (f"mpi4py skips it: {result.skipped[0][1]}" if result.skipped else ""), wrong


def main(folder: str, *patterns: str) -> int:
    world, began, failed = MPI.COMM_WORLD, time.monotonic(), 0
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    skipped: collections.Counter[str] = collections.Counter()
    substitute = Substitute()
    for case in cases(folder, substitute, list(patterns) or ["*"]):
        reason, wrong = run(case)
        if wrong:  # before the exchange with the other ranks, which may still wait in the test
            print(f"FAILED {case.id()} on rank {world.rank}:\n{wrong}", flush=True)
        outcomes = world.allgather((reason, bool(wrong)))
        reason, wrong = next((reason for reason, _ in outcomes if reason), ""), any(wrong for _, wrong in outcomes)
        counts[case.id().partition(".")[0]]["failed" if wrong else "skipped" if reason else "passed"] += 1
        failed += wrong
        skipped[reason] += bool(reason and not wrong)
    substitute.COMM_WORLD.Free()
    substitute.COMM_SELF.Free()
    if world.rank == 0:
        for reason, count in skipped.items():
            if count:
                print(f"skipped {count}: {reason}")
        total = sum(counts.values(), collections.Counter())
        for name, numbers in (*counts.items(), ("all", total)):
            print(f"{name}: " + ", ".join(f"{numbers[what]} {what}" for what in ("passed", "failed", "skipped")))
        print(f"on {world.size} ranks of {MPI.get_vendor()[0]} in {time.monotonic() - began:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
