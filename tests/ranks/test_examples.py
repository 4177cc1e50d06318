"""Runs the examples as a user does."""

from __future__ import annotations

import json
import re

import mpi_case
import numpy as np
import pytest
from launching import ROOT

EXAMPLES = ROOT / "examples"


def digits(folder, ranks, *arguments):
    """Returns (printed text, saved arrays) of a training run."""
    file = folder / f"weights-{ranks}.npz"
    text = mpi_case.output_of(
        [EXAMPLES / "train_digits.py", "--save", file, "--output", folder, *arguments], folder, ranks
    )
    with np.load(file) as saved:
        return text, dict(saved)


def test_training_on_two_ranks(tmp_path):
    pytest.importorskip("sklearn")
    text, saved = digits(tmp_path, 2)
    accuracy = float(re.search(r"^test accuracy: (0\.\d{3}|1\.000)$", text, re.M)[1])
    assert accuracy >= 0.97 and accuracy == pytest.approx(saved["accuracy"], abs=5e-4)
    assert re.search(r"^weights: identical bits on all 2 ranks \(sha256 [0-9a-f]+\)$", text, re.M)
    assert saved["losses"][-20:].mean() < 0.1 < saved["losses"][0]
    assert (tmp_path / "train_digits.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "tolerance", "sizes"),
    [
        pytest.param(["--dtype", "float64", "--steps", "30"], 1e-9, (2, 3), marks=pytest.mark.slow),
        (["--dtype", "float32", "--steps", "20"], 2e-4, (2,)),
        (["--dtype", "float64", "--steps", "7", "--batch", "2"], 1e-9, (3,)),  # on 3 ranks, one rank has no samples
    ],
    ids=["float64", "float32", "empty shard"],
)
def test_training_comes_out_as_on_one_rank(arguments, tolerance, sizes, tmp_path):
    pytest.importorskip("sklearn")
    _, alone = digits(tmp_path, 1, *arguments)
    for ranks in sizes:
        text, together = digits(tmp_path, ranks, *arguments)
        assert f"identical bits on all {ranks} ranks" in text
        for name, value in alone.items():
            scale = np.abs(value).max()
            np.testing.assert_allclose(together[name], value, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@pytest.mark.slow
def test_relaxed(tmp_path):
    pytest.importorskip("sklearn")
    saved = tmp_path / "curves.json"
    arguments = [
        "--method",
        "all",
        "--unit",
        "2",
        "--seconds",
        "0.45",
        "--straggler",
        "3",
        "--target",
        "0.5",
        "--save",
        saved,
    ]
    text = mpi_case.output_of([EXAMPLES / "train_relaxed.py", *arguments], tmp_path, 2)
    results = json.loads(saved.read_text())
    assert len(results) == text.count("0.5 after") >= 10
    for method, result in results.items():
        assert max(now for _, _, now in result["curve"]) >= 0.5, (method, result)


def test_character_model(tmp_path):
    text = mpi_case.output_of(
        [
            EXAMPLES / "train_char_lm.py",
            "--steps",
            "3",
            "--batch",
            "4",
            "--context",
            "16",
            "--width",
            "16",
            "--layers",
            "1",
            "--sample",
            "40",
            "--compression",
            "onebit",
            "--warmup",
            "1",
            "--everywhere",
            "--output",
            tmp_path,
        ],
        tmp_path,
        2,
    )
    first, last = map(float, re.search(r"training loss: (\S+) at first, (\S+) at last", text).groups())
    assert 0 < last < first + 1
    assert len(text.split("sample:\n")[1]) > 40 and (tmp_path / "train_char_lm.png").exists()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_arrays(ranks, tmp_path):
    text = mpi_case.output_of([EXAMPLES / "numpy_allreduce.py"], tmp_path, ranks)
    total = ranks * (ranks + 1) // 2
    assert re.search(rf"sum \[{total}\.", text) and f"gradient 3: {3 * ranks}" in text


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_custom_algorithm(ranks, tmp_path):
    text = mpi_case.output_of([EXAMPLES / "custom_algorithm.py", "--output", tmp_path / "drawn.png"], tmp_path, ranks)
    assert "proved" in text and "equal to ring: yes" in text and (tmp_path / "drawn.png").exists()


def test_toy_binding(tmp_path):
    """It has fewer than 100 lines, prints the page's output, and works on other job sizes."""
    program, page = EXAMPLES / "toy_binding.py", (ROOT / "docs" / "writing-a-binding.md").read_text(encoding="utf-8")
    assert len(program.read_text().splitlines()) < 100
    assert mpi_case.output_of([program], tmp_path, ranks=2).strip() in page
    for ranks in (1, 3):
        mean = (ranks - 1) / 2
        text = mpi_case.output_of([program], tmp_path, ranks=ranks)
        assert f"[{mean}, {mean + 1}]), 'bias': Tensor([{10 * mean}])" in text


def test_tutorial(tmp_path):
    """Two ranks learn as well as one process, and a resumed job continues with the next epoch."""
    pattern = r"^epoch (\d): accuracy (\S+)"
    for name, copies in (("one_process.py", 2), ("many_ranks.py", 1)):
        text = mpi_case.output_of([EXAMPLES / "tutorial" / name], tmp_path, 2)
        found = re.findall(pattern, text, re.M)
        assert sorted(int(epoch) for epoch, _ in found) == sorted([*range(5)] * copies), text
        assert float(found[-1][1]) > 0.9, text
    resume = [EXAMPLES / "tutorial" / "resume.py", "--epochs"]
    jobs = [re.findall(pattern, mpi_case.output_of([*resume, epochs], tmp_path, 2), re.M) for epochs in "12"]
    assert [epoch for job in jobs for epoch, _ in job] == ["0", "1"]
    assert float(jobs[1][0][1]) > float(jobs[0][0][1]) > 0.7
