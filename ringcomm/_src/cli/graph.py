"""Implements `ringcomm show --topology`: weights and rate of convergence of a gossip graph."""

from __future__ import annotations

import math
import runpy
from typing import Any

from ringcomm._src.cli.text import refuse
from ringcomm._src.decentralized.topology import Matrix, Topology, prove, topologies, topology

_MOST = 16  # largest number of ranks for which the matrix fits a terminal


def show(name: str, size: int, file: str | None, output: str | None) -> int:
    if not 1 <= size <= 1024:
        return refuse("show", "--ranks must be 1 to 1024")
    try:
        if file is not None:
            runpy.run_path(file, run_name="ringcomm_show")
        if name == "list":
            print("\n".join(f"{entry.name:<22} {entry.summary}" for entry in topologies()))
            return 0
        graph = topology(name)
        print(describe(graph, size))
        if output:
            draw(graph, size, output)
            print(f"picture written to {output}")
    except (ValueError, OSError) as error:
        return refuse("show", error)
    return 0


def _matrices(graph: Topology, size: int) -> list[Matrix]:
    """Returns the weights of each round of a period."""
    return [graph.matrix(size, t) for t in range(graph.period(size))]


def describe(graph: Topology, size: int) -> str:
    matrices = _matrices(graph, size)
    period = f"{len(matrices)} round{'s' * (len(matrices) > 1)}"
    lines = [f"{graph.name}, {size} ranks: {graph.summary or 'registered'}; repeats after {period}"]
    for t, matrix in enumerate(matrices):
        lines.append(f"round {t}, weights:")
        if size <= _MOST:
            lines += ["  " + " ".join(f"{value:5.3f}" if value else "    ." for value in row) for row in matrix]
        else:
            degrees = sorted({len(graph.in_neighbors(rank, size, t)) for rank in range(size)})
            number = f"{degrees[0]} to {degrees[-1]}" if len(degrees) > 1 else f"{degrees[0]}"
            lines.append(f"  each rank receives from {number} other rank{'s' * (number != '1')}")
    lines.append(str(prove(matrices)))
    return "\n".join(lines)


def draw(graph: Topology, size: int, output: str) -> None:
    """Draws each round of a period: the graph on a circle, and below it the weights as numbers."""
    from ringcomm._src.cli.plotting import make_figure

    matrices = _matrices(graph, size)
    columns = min(len(matrices), 4 if size <= 6 else 3 if size <= 8 else 2)
    rows = math.ceil(len(matrices) / columns)
    side = min(4.6, 9.2 / columns)
    figure = make_figure(max(side * columns, 4.2) + 0.2, 2 * side * rows + 0.7)
    panels = figure.subplots(2 * rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.axis("off")
    for t, matrix in enumerate(matrices):
        row, column = divmod(t, columns)
        panels[2 * row][column].set_title(f"round {t}", fontsize=10)
        _circle(panels[2 * row][column], graph, size, t)
        _numbers(panels[2 * row + 1][column], matrix, side)
    proof = str(prove(matrices)).replace("; ", "\n", 1) if columns == 1 else str(prove(matrices))
    figure.suptitle(f"{graph.name}, {size} ranks\n{proof}", fontsize=9)
    figure.savefig(output, dpi=100)


def _circle(panel: Any, graph: Topology, size: int, t: int) -> None:
    places = [(math.sin(2 * math.pi * r / size), math.cos(2 * math.pi * r / size)) for r in range(size)]
    for rank in range(size):
        for other in graph.in_neighbors(rank, size, t):
            arrow = {"arrowstyle": "->", "color": "#0072B2", "shrinkA": 9, "shrinkB": 9, "alpha": 0.7}
            panel.annotate("", places[rank], places[other], arrowprops=arrow)
        style = {"ha": "center", "va": "center", "fontsize": 8 if size <= _MOST else 6}
        panel.text(*places[rank], str(rank), bbox={"boxstyle": "circle", "fc": "white"}, **style)
    panel.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")


def _numbers(panel: Any, matrix: Matrix, side: float) -> None:
    """Draws the weights; row r has the weights with which rank r averages the others' values."""
    size = len(matrix)
    panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1.3)
    panel.axis("on")
    panel.set_xlabel("weight of the rank", fontsize=8)
    panel.set_ylabel("rank", fontsize=8)
    step = math.ceil(size / 16)
    panel.set_xticks(range(0, size, step))
    panel.set_yticks(range(0, size, step))
    panel.tick_params(labelsize=7)
    for r, row in enumerate(matrix if size <= _MOST else ()):
        for c, value in enumerate(row):
            if value:
                text = f"{value:.2f}".lstrip("0")
                panel.text(c, r, text, ha="center", va="center", fontsize=min(8.0, 24 * side / size))
