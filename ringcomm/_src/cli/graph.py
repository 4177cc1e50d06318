"""Implements `ringcomm show --topology`: weights and rate of convergence of a gossip graph."""

from __future__ import annotations

import math
import runpy

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
    """Draws the graph of each round of a period on a circle, and the first round's matrix."""
    from matplotlib.figure import Figure

    matrices = _matrices(graph, size)
    figure = Figure(figsize=(3.2 * (len(matrices) + 1), 3.4), layout="constrained")
    axes = figure.subplots(1, len(matrices) + 1, squeeze=False)[0]
    places = [(math.sin(2 * math.pi * r / size), math.cos(2 * math.pi * r / size)) for r in range(size)]
    for t, panel in enumerate(axes[:-1]):
        for rank in range(size):
            for other in graph.in_neighbors(rank, size, t):
                arrow = {"arrowstyle": "->", "color": "tab:blue", "shrinkA": 9, "shrinkB": 9, "alpha": 0.7}
                panel.annotate("", places[rank], places[other], arrowprops=arrow)
            panel.text(*places[rank], str(rank), ha="center", va="center", bbox={"boxstyle": "circle", "fc": "white"})
        panel.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal", title=f"round {t}")
        panel.axis("off")
    axes[-1].imshow(matrices[0], cmap="Blues", vmin=0)
    axes[-1].set(title="weights, round 0", xlabel="receives from", ylabel="rank")
    figure.suptitle(f"{graph.name}, {size} ranks: {prove(matrices)}", fontsize=9)
    figure.savefig(output)
