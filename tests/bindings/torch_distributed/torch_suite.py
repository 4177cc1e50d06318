"""Runs PyTorch's installed suite for backends on ringcomm, under mpiexec or torchrun.

It prints a line for each test that did not pass, then the numbers of passed, failed and skipped
tests. Arguments: patterns of names (fnmatch); none: all tests.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import sys
import tempfile
import time
import traceback
import unittest
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import ringcomm.torch.distributed

BACKEND = ringcomm.torch.distributed.NAME
if dist.is_torchelastic_launched():  # MPI learns the ranks from the group
    dist.init_process_group(BACKEND)
    dist.destroy_process_group()

from mpi4py import MPI  # noqa: E402

WORLD = MPI.COMM_WORLD
os.environ["BACKEND"] = "gloo"  # the suite selects the tests for CPU tensors by it
os.environ["WORLD_SIZE"] = str(WORLD.size)
os.environ["TEMP_DIR"] = FOLDER = WORLD.bcast(tempfile.mkdtemp() if WORLD.rank == 0 else None)
for folder in ("barrier", "init_dir", "test_dir"):
    os.makedirs(os.path.join(FOLDER, folder), exist_ok=True)

from torch.testing._internal import common_distributed, common_utils  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

SECONDS = 60.0  # a group's timeout
OWN_NAME = ("test_get_backend", "test_barrier_timeout_global")  # tests that create a group, or read its name
ELSEWHERE = {  # tests that do not test this backend, with the reasons
    "*_cuda*": "of GPUs",
    "test_batch_isend_irecv_mixed_backend_err": "of NCCL",
    "test_batch_isend_irecv_op_err": "of NCCL",
    "test_monitored_barrier_[gfw]*": "torch's monitored_barrier asks for gloo by name",
    "test_SyncBatchNorm_process_group": "needs torchvision",
}
if WORLD.size < 4:
    ELSEWHERE["test_new_subgroups_with_group_param"] = "needs four ranks"


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """PyTorch's suite, in which MPI starts the ranks instead of the suite."""

    def setUp(self) -> None:
        common_utils.set_rng_seed(common_utils.SEED)
        WORLD.Barrier()
        if WORLD.rank == 0:
            distributed_test.Barrier.init()
        distributed_test.Barrier.barrier_id = 0
        WORLD.Barrier()

    def tearDown(self) -> None:
        pass


def names() -> list[str]:
    patterns = sys.argv[1:] or ["*"]
    found = unittest.TestLoader().getTestCaseNames(Suite)
    return [name for name in found if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def run(name: str) -> str:
    """Runs a test. Returns why it was skipped, or "". Raises what the test raises."""
    if why := next((why for pattern, why in ELSEWHERE.items() if fnmatch.fnmatch(name, pattern)), ""):
        return why
    distributed_test.BACKEND = BACKEND if name in OWN_NAME else "gloo"
    test: Any = Suite(name)
    test.rank, test.file_name = WORLD.rank, ""
    seconds = distributed_test.CUSTOM_PG_TIMEOUT.get(name, SECONDS)
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=seconds))
    test.setUp()
    try:
        getattr(test, name)()
    except unittest.SkipTest as skip:
        return str(skip)
    except SystemExit as end:  # the suite's processes report a skip this way
        skips = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
        if end.code in skips:
            return str(skips[end.code])
        if end.code:
            raise RuntimeError(f"it ended with status {end.code}") from end
    return ""


def main() -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    began = time.monotonic()
    for name in names():
        start, why, error = time.monotonic(), "", ""
        try:
            why = run(name)
        except BaseException:
            error = traceback.format_exc()
        outcomes = WORLD.allgather((why, error))
        with contextlib.suppress(Exception, AssertionError):
            dist.destroy_process_group()
        if any(error for _, error in outcomes):
            counts["failed"] += 1
        else:
            counts["skipped" if any(why for why, _ in outcomes) else "passed"] += 1
        if WORLD.rank == 0:
            if os.environ.get("VERBOSE"):
                print(f"{time.monotonic() - start:6.2f} s {name} {why}", flush=True)
            for rank, (_, error) in enumerate(outcomes):
                if error:
                    print(f"FAILED {name} on rank {rank} after {time.monotonic() - start:.1f} s:\n{error}", flush=True)
    if WORLD.rank == 0:
        shutil.rmtree(FOLDER, ignore_errors=True)
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"{told} on {WORLD.size} ranks in {time.monotonic() - began:.0f} s", flush=True)
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
