"""`ringcomm show`: values, selected rounds and ranks, animations, large schedules, suggestions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm._src.cli import compact, main, names, show_text, values
from ringcomm._src.core import _core

ALLREDUCES = [a.name for a in _core.algorithms() if a.collective == "allreduce"]


def ranks_of(name, size, collective="allreduce"):
    return [_core.schedule(collective, name, rank, size, 0) for rank in range(size)]


def pixels(figure):
    return [int(inches * 110) for inches in figure.get_size_inches()]


@pytest.mark.parametrize("name", ALLREDUCES)
@given(size=st.integers(1, 6), count=st.integers(0, 12), data=st.data())
@settings(max_examples=10)
def test_values_begin_with_the_inputs_and_end_with_sums(name, size, count, data):
    rows = data.draw(
        st.lists(st.lists(st.integers(-99, 99), min_size=count, max_size=count), min_size=size, max_size=size)
    )
    schedules = ranks_of(name, size)
    labels = values.labels_of(schedules, rows)
    blocks = schedules[0].blocks

    def numbers(of_rank):
        return [int(word) for text in of_rank[:blocks] for word in text.split()]

    assert [numbers(of_rank) for of_rank in labels[0]] == rows
    assert all(numbers(of_rank) == [sum(column) for column in zip(*rows, strict=True)] for of_rank in labels[-1])


@pytest.mark.parametrize("name", ALLREDUCES)
@pytest.mark.parametrize("size", [1, 3, 4])
def test_symbols_name_every_rank_once(name, size):
    schedules = ranks_of(name, size)
    complete = [_core.follow(schedules)[rank] for rank in range(size)]
    for moment, of_ranks in enumerate(values.labels_of(schedules, values.SYMBOLS)):
        for rank, blocks in enumerate(of_ranks):
            for block, text in enumerate(blocks):
                terms = re.findall(r"[a-z]", text)
                share = complete[rank][min(moment, len(complete[rank]) - 1)][block]
                assert len(set(terms)) == len(terms) == round(share * size)


@given(st.lists(st.lists(st.integers(-999, 999), min_size=2, max_size=2), min_size=1, max_size=5))
def test_values_are_parsed(rows):
    assert values.parse_values(";".join(",".join(map(str, row)) for row in rows)) == rows


@pytest.mark.parametrize("text", ["1,2;3", "a", "1,,2", ";;1,2,;"])
def test_wrong_values_are_one_line(text, capsys):
    assert main(["show", "ring", "--values", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rounds_and_rank_select(capsys):
    assert main(["show", "ring", "--ranks", "4", "--rounds", "1-2", "--rank", "3", "--values"]) == 0
    text = capsys.readouterr().out
    assert "rank 3" in text and "rank 2" not in text
    assert re.findall(r"^ +(\d) \|", text, re.M) == ["1", "2"]
    assert re.findall(r"^ *(start|after \d) \|", text, re.M) == ["after 0", "after 1", "after 2"]
    for words in (["--rounds", "5-9"], ["--rank", "4"], ["--values", "1;2"], ["--ranks", "20", "--values"]):
        assert main(["show", "ring", *(words if "--ranks" in words else ["--ranks", "4", *words])]) == 2
    with pytest.raises(SystemExit):
        main(["show", "ring", "--rounds", "2-1"])


@pytest.mark.parametrize(("name", "size"), [("ring", 16), ("ring", 64), ("tree", 64), ("butterfly_halving", 32)])
def test_pictures_of_many_ranks_are_narrow(name, size):
    pytest.importorskip("matplotlib")
    schedules = ranks_of(name, size)
    rounds = range(max(len(schedule.rounds) for schedule in schedules))
    figure = compact.figure_of(schedules, rounds, None, None)
    width, height = pixels(figure)
    assert width <= 1000 and height <= 2600
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"round 0", f"round {min(len(rounds), compact.MOST_ROUNDS) - 1}"} <= texts


def test_a_picture_of_a_round_between_has_neither_start_nor_end():
    pytest.importorskip("matplotlib")
    schedules = ranks_of("ring", 16)
    for number, ends in ((0, {"start"}), (1, set()), (29, {"end"})):
        figure = compact.figure_of(schedules, range(number, number + 1), None, None)
        assert {text.get_text() for text in figure.axes[0].texts} & {"start", "end"} == ends


def test_an_animation_has_a_picture_for_each_round(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    common = ["show", "ring", "--values", "1,2,3;4,5,6;7,8,9"]
    assert main([*common, "--animate", str(tmp_path / "ring.html")]) == 0
    page = (tmp_path / "ring.html").read_text()
    assert page.count("<img ") == 4 and 'max="3"' in page and not re.search(r"(src|href)=\"(?!data:)", page)
    assert main([*common, "--animate", str(tmp_path / "ring.gif"), "--rounds", "1-2"]) == 0
    assert image.open(tmp_path / "ring.gif").n_frames == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("Ring", "did you mean ring?"),
        ("butterfly-halving", "did you mean butterfly_halving?"),
        ("tre:3", "did you mean tree:3?"),
        ("scatter_ring", "did you mean --collective broadcast? scatter_ring is an algorithm of broadcast"),
        ("one_peer_exponental", "--topology one_peer_exponential"),
        ("xyzzy", "known: "),
        ("--topology Ring", "there is no topology 'Ring': did you mean ring?"),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(words, meant, capsys):
    assert main(["show", *words.split()]) == 2
    captured = capsys.readouterr()
    assert meant in captured.err and not captured.out


@given(data=st.data())
def test_a_name_with_one_wrong_letter_is_found(data):
    name = data.draw(st.sampled_from(ALLREDUCES))
    at = data.draw(st.integers(0, len(name) - 1))
    if len(name) > 4:
        hint = names.algorithm_hint("allreduce", f"{name[:at]}{name[at + 1 :]}")
        assert hint and "did you mean" in hint


@pytest.mark.parametrize(
    "command",
    [
        "show ring --output {}.foo",
        "show ring --output {}",
        "show ring --output missing/{}.png",
        "show ring --animate {}.png",
        "show --topology ring --output {}.foo",
        "bench allreduce --plot {}.foo",
        "bench allreduce --json missing/{}.json",
    ],
)
def test_output_files_are_checked_first(command, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert main(command.format("picture").split()) == 2
    captured = capsys.readouterr()
    assert not captured.out and captured.err.count("\n") == 1
    assert "known format" in captured.err or "does not exist" in captured.err
    assert not list(tmp_path.iterdir())


def test_a_topology_is_drawn_with_numbers_for_every_round(tmp_path, monkeypatch):
    figure_module = pytest.importorskip("matplotlib.figure")
    saved = []
    monkeypatch.setattr(figure_module.Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
    assert main(["show", "--topology", "one_peer_exponential", "--output", str(tmp_path / "x.png")]) == 0
    (figure,) = saved
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    numbers = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert titles == ["round 0", "round 1", "round 2"] and numbers.count(".50") == 3 * 16


def test_a_table_of_values_fits_the_terminal():
    schedules = ranks_of("ring", 8)
    labels = values.labels_of(schedules, [[100] * 16 for _ in range(8)])
    lines = show_text.value_table(labels, range(3), None, 100)
    assert max(map(len, lines[:-1])) <= 100 and "not shown" in lines[-1]
