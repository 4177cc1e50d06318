"""The cases of ringcomm.tensorflow, ringcomm.keras and ringcomm.jax, on ranks under mpiexec.

One job runs for each framework and number of ranks, because importing TensorFlow takes longer than
most cases.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from framework_cases import few_threads, run_cases  # noqa: E402

PATHS = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
SLOW = {
    *(("tensorflow", "cases_tensorflow", ranks) for ranks in (1, 3, 5)),
    *(("jax", "cases_jax,cases_jax_transforms", ranks) for ranks in (1, 3, 5)),
    ("tensorflow", "cases_keras", 3),
    *((backend, "cases_keras", 2) for backend in ("torch", "jax")),
    *((backend, "cases_elastic_states,cases_elastic_callbacks", 2) for backend in ("tensorflow", "torch", "jax")),
}
JOBS = [  # backend, cases, numbers of ranks
    ("tensorflow", "cases_tensorflow", (1, 2, 3, 5)),
    ("jax", "cases_jax,cases_jax_transforms", (1, 2, 3, 5)),
    ("tensorflow", "cases_keras", (2, 3)),
    ("torch", "cases_keras", (2,)),
    ("jax", "cases_keras", (2,)),
    *((backend, "cases_elastic_states,cases_elastic_callbacks", (2,)) for backend in ("tensorflow", "torch", "jax")),
]


def missing(*frameworks: str) -> str | None:
    absent = [one for one in frameworks if importlib.util.find_spec(one) is None]
    return f"{', '.join(absent)} not installed: make test-frameworks" if absent else None


def jobs() -> list[object]:
    found = []
    for backend, module, ranks in JOBS:
        why = missing(backend, *(["keras"] if module.startswith(("cases_keras", "cases_elastic")) else []))
        skip = pytest.mark.skipif(why is not None, reason=str(why))
        name = module.partition(",")[0].removeprefix("cases_")
        for n in ranks:
            marks = [skip, *([pytest.mark.slow] if (backend, module, n) in SLOW else [])]
            found.append(pytest.param(backend, module, n, id=f"{name}-{backend}-{n}", marks=marks))
    return found


def on(backend: str) -> dict[str, str]:
    return {"PYTHONPATH": PATHS, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.mark.parametrize(("backend", "module", "ranks"), jobs())
def test_cases(backend: str, module: str, ranks: int) -> None:
    result = mpi_case.run(ranks, run_cases, module, limit=280, variables=on(backend), alone=True)
    (line,) = result.lines("passed ")
    assert line.endswith(f"cases on {ranks} ranks")


# ---- examples --------------------------------------------------------------------------------------------------------
EXAMPLES = [
    ("tensorflow_digits", "tensorflow"),
    ("jax_digits", "jax"),
    ("keras_digits", "tensorflow"),
    pytest.param("keras_digits", "torch", marks=pytest.mark.slow),
    pytest.param("keras_digits", "jax", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "backend"), EXAMPLES)
def test_examples_learn(name: str, backend: str) -> None:
    needed = [backend, "sklearn", *(["keras"] if name == "keras_digits" else [])]
    if why := missing(*needed, *(["optax"] if name == "jax_digits" else [])):
        pytest.skip(why)
    program = HERE.parents[2] / "examples" / f"{name}.py"
    arguments = [str(program)], str(HERE)
    result = mpi_case.run(2, mpi_case.run_python, *arguments, limit=200, variables=on(backend), alone=True)
    assert "identical bits on all 2 ranks" in result.text
    assert float(result.lines("test accuracy: ")[0].split()[-1]) > 0.93


# ---- ends ------------------------------------------------------------------------------------------------------------
def fit_that_ends(how: str) -> None:
    """Rank 1 raises in a batch, or is killed; rank 0 waits for it in a reduction."""
    few_threads()
    import signal

    import keras
    import numpy as np

    import ringcomm.keras as hvd

    hvd.init()

    class End(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            if batch != 3 or hvd.rank() != 1:
                return
            if how == "raise":
                raise KeyError("a fault of the test's")
            os.kill(os.getpid(), signal.SIGKILL)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    mpi_case.say("fits")
    model.fit(np.ones((80, 4)), np.ones((80, 1)), batch_size=2, verbose=0, callbacks=[End()])


def jax_steps_that_rank_0_saves(path: str) -> None:
    """Rank 1 has dispatched its steps, and leaves; rank 0 takes longer."""
    few_threads()
    import time

    import jax
    import jax.numpy as jnp

    import ringcomm.jax as rc

    rc.init()

    @jax.jit
    def step(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        for _ in range(4):
            weights = rc.allreduce(weights @ weights / 300, op=rc.Average)
        return weights, weights.mean()

    weights = jnp.ones((300, 300))
    for _ in range(5):
        if rc.rank() == 0:
            time.sleep(0.1)
        weights, loss = step(weights)
    if rc.rank() == 0:
        mpi_case.say(f"loss {float(loss)}")
        Path(path).write_text("saved")


@pytest.mark.skipif(missing("jax") is not None, reason=str(missing("jax")))
def test_a_rank_ends_after_the_programs_it_has_dispatched(tmp_path: Path) -> None:
    saved = tmp_path / "weights"
    result = mpi_case.start(2, jax_steps_that_rank_0_saves, str(saved), limit=90, variables=on("jax"))
    assert result.status == 0, result.text
    assert "loss 1.0" in result.text and saved.read_text() == "saved"


@pytest.mark.skipif(missing("tensorflow", "keras") is not None, reason=str(missing("tensorflow", "keras")))
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_others_end_when_a_rank_does(how: str) -> None:
    result = mpi_case.start(2, fit_that_ends, how, limit=90, variables=on("tensorflow"))
    assert result.status != 0 and "rank 1" in result.text
    if how == "raise":
        assert "a fault of the test's" in result.text


# ---- without the frameworks ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["tensorflow", "keras", "jax"])
def test_a_missing_framework_is_one_import_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ringcomm._src.base import installed

    for version, words in ((None, "is not installed"), ("0.1.2", "version 0.1.2 is installed")):
        monkeypatch.setattr(installed, "framework_version", lambda _, version=version: version)
        with pytest.raises(ImportError, match=rf'{words}: pip install "ringcomm\[{name}\]"'):
            installed.require_framework(name)
