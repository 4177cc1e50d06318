"""Runs the functions ``case_*`` of modules (a,b), in order, on every rank. By hand:

``cd tests/bindings/frameworks; KERAS_BACKEND=jax mpiexec -n 2 python framework_cases.py cases_keras
[part of a name]``
"""

import dataclasses
import gc
import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("tensorflow", "keras", "jax")]

import ringcomm  # noqa: E402
from ringcomm._src.named import objects, runtime  # noqa: E402


def few_threads() -> None:
    """Limits the threads of frameworks, because ranks share the cores of this machine."""
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(2)
        tf.get_logger().setLevel("ERROR")  # cases retrace the same functions many times
        tf.config.threading.set_intra_op_parallelism_threads(1)
    elif os.environ["KERAS_BACKEND"] == "torch":
        import torch

        torch.set_num_threads(1)


def assert_memory_stays(work: Callable[[], None], rounds: int = 10) -> None:
    """Runs rounds of `work` until no rank's memory grows; fails if it grows in each round.

    Threads and allocators need some rounds to reach their full size, more so with many ranks on few
    cores. All ranks run the same number of rounds.
    """
    process, held, stays = psutil.Process(), [], False
    for _ in range(rounds):
        work()
        gc.collect()
        held.append(process.memory_info().rss >> 10)
        stays |= len(held) > 1 and held[-1] - held[-2] < 256
        if ringcomm.allreduce(int(stays), op=ringcomm.Sum) == ringcomm.size():
            return
    raise AssertionError(f"memory grew in every one of {rounds} rounds, on some rank; here it was, in KiB: {held}")


@contextmanager
def checking(option: str) -> Iterator[Callable[[], tuple[int, int, list[str]]]]:
    """Sets RINGCOMM_REPLICA_CHECK within the block.

    Yields a function that returns (equal, different, rank 0's messages).
    """
    session = runtime.session()
    said: list[str] = []
    before, handler = session.config, logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    session.config = dataclasses.replace(before, replica_check=option)
    logging.getLogger("ringcomm").addHandler(handler)
    ringcomm.stats(reset=True)

    def found() -> tuple[int, int, list[str]]:
        equal, different = (ringcomm.stats().of("replica check", one).calls for one in ("equal", "different"))
        return equal, different, objects.broadcast_object(said, 0, None, ringcomm.global_process_set, "cases")

    try:
        yield found
    finally:
        session.config = before
        logging.getLogger("ringcomm").removeHandler(handler)


def run_cases(module_names: str, wanted: str = "") -> None:
    """Runs the cases. A failure on one rank ends the job: other ranks would wait for it."""
    few_threads()
    modules = [importlib.import_module(name) for name in module_names.split(",")]
    ringcomm.init()
    cases = [
        (f"{module.__name__}.{name}", case)
        for module in modules
        for name, case in vars(module).items()
        if name.startswith("case_") and wanted in name
    ]
    for name, case in cases:
        begun = time.monotonic()
        try:
            case()
        except BaseException:
            print(f"rank {ringcomm.rank()}: {name} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(1)
        if wanted and ringcomm.rank() == 0:
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    ringcomm.barrier()
    if ringcomm.rank() == 0:
        print(f"passed {len(cases)} cases on {ringcomm.size()} ranks", flush=True)
    ringcomm.shutdown()


if __name__ == "__main__":
    run_cases(*sys.argv[1:])


def assert_left_out_comes_later(reduced, rank, size):
    """Checks error feedback: the mean of many results has a smaller error than one result.

    `reduced(array)` returns the sum over all ranks by a lossy encoder. Without feedback each result
    would have the same error.
    """
    import numpy as np

    arrays = [np.random.default_rng(one).standard_normal((40, 50)).astype(np.float32) for one in range(size)]
    whole, times = sum(arrays), 30
    results = [np.asarray(reduced(arrays[rank])) for _ in range(times)]
    first = np.abs(results[0] - whole).max()
    assert size == 1 or first > 0.1, first
    assert np.abs(sum(results) / times - whole).max() <= 0.85 * first + 1e-5


def assert_it_is_saved_and_goes_on(hvd, make, name, mean):
    """Checks that results plus saved residuals equal the inputs.

    `make()` returns a new function that reduces an array of this name by an encoder. The residuals
    are loaded both by a process that has not called it yet, and by one that has.
    """
    import numpy as np

    from ringcomm._src.named import error_feedback

    rank, size = hvd.rank(), hvd.size()
    given, arrived, random = np.zeros((40, 50)), np.zeros((40, 50)), np.random.default_rng(3)
    state = {}
    for _ in range(3):
        reduced = make()
        if size > 1 and state:
            error_feedback._stores.clear()  # simulates the start of another process
            hvd.load_compression_state_dict({name: state[name]})
            assert hvd.compression_state_dict().keys() == {name}
        for step in range(4):
            arrays = [random.standard_normal((40, 50)).astype(np.float32) for _ in range(size)]
            given += sum(arrays) / (size if mean else 1)
            arrived += np.asarray(reduced(arrays[rank]))
            if step == 1:
                hvd.load_compression_state_dict(hvd.compression_state_dict())
        assert size == 1 or name not in error_feedback.loaded_residuals.get(hvd.global_process_set, {})
        state = hvd.compression_state_dict()
        residual = state[name].reshape(40, 50) if size > 1 else 0
        np.testing.assert_allclose(arrived + residual, given, atol=1e-3)
        assert size == 1 or np.abs(residual).max() > 0.1
    if size > 1:
        try:
            hvd.load_compression_state_dict({name: np.zeros(7, np.float32)})
            raise AssertionError("it was taken")
        except ValueError as error:
            assert name in str(error) and "7 elements" in str(error), error
