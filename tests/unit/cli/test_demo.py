"""`ringcomm demo`: its data, its messages, and the job that it starts."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import run

import ringcomm
from ringcomm._src.base import installed
from ringcomm._src.cli import main
from ringcomm._src.launch import demo


def test_the_synthetic_digits_can_be_learned_but_not_by_brightness():
    worker = pytest.importorskip("ringcomm._src.cli.demo_worker")
    images, labels = worker.synthetic_digits(2000)
    assert images.shape == (2000, 8, 8) and images.min() >= 0 and images.max() <= 1
    assert np.bincount(labels).min() > 100
    train, test = images[:1500].reshape(1500, -1), images[1500:].reshape(500, -1)
    distances = ((test[:, None] - train[None]) ** 2).sum(2)
    assert (labels[:1500][distances.argmin(1)] == labels[1500:]).mean() > 0.7
    brightness = np.abs(test.sum(1)[:, None] - train.sum(1)[None])
    assert (labels[:1500][brightness.argmin(1)] == labels[1500:]).mean() < 0.4


def test_without_torch_the_demo_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(installed, "framework_version", lambda name: None)
    assert main(["demo"]) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err == 'ringcomm demo: the demo needs PyTorch: pip install "ringcomm[mpich,torch]"\n'
    with pytest.raises(ImportError, match="needs PyTorch"):
        ringcomm.demo()


@given(st.integers(-3, 3), st.integers(-3, 3))
def test_numbers_below_one_are_refused(ranks, epochs):
    if min(ranks, epochs) < 1:
        with pytest.raises(ValueError, match=f"not {ranks} and {epochs}"):
            ringcomm.demo(ranks, epochs)


@given(steps=st.integers(1, 500), data=st.data())
def test_the_bar_has_one_width_and_ends_full(steps, data):
    step = data.draw(st.integers(1, steps))
    text = demo.bar_text("2 ranks", step, steps, 1.0)
    assert text.count("█") + text.count("░") == demo.BAR
    assert ("░" not in text) == (step == steps) and f"step {step}/{steps}" in text


def test_a_failed_job_shows_its_output(monkeypatch, capfd):
    pytest.importorskip("torch")
    monkeypatch.setattr(demo, "WORKER", "ringcomm.no_such_module")
    with pytest.raises(RuntimeError, match="failed with status"):
        ringcomm.demo()
    assert "no_such_module" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    "command", [["-m", "ringcomm", "demo", "--epochs", "4"], ["-c", "import ringcomm; ringcomm.demo(epochs=4)"]]
)
def test_the_demo_compares_ranks_with_one_process(command, tmp_path):
    pytest.importorskip("torch")
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr
    (one,), (two,) = (
        re.findall(rf"^{label} +([\d.]+)% +[\d.]+ s", done.stdout, re.M) for label in ("1 process", "2 ranks")
    )
    assert abs(float(one) - float(two)) < 1.5 and float(two) > 90  # the same samples, other rounding
    assert re.search(r"^Speed-up: \d+\.\d\d ", done.stdout, re.M) and "\nNext:\n" in done.stdout
    assert sys.executable not in done.stdout
