"""Writes one picture per round to a file: HTML with buttons, without other files, or a GIF."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 1.5  # per picture

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>ringcomm show</title><style>
body {{ font-family: sans-serif; text-align: center; margin: 1em }}
img {{ display: none; max-width: 100%; margin: 0.5em auto }} img.shown {{ display: block }}
button {{ font-size: 1em; min-width: 5em }}
</style></head><body>
<button id="back">Back</button> <button id="play">Play</button> <button id="next">Next</button>
<span id="number"></span>
{images}
<script>
const pictures = document.querySelectorAll("img");
let current = 0, timer = null;
function show(index) {{
  pictures[current].classList.remove("shown");
  current = (index + pictures.length) % pictures.length;
  pictures[current].classList.add("shown");
  document.getElementById("number").textContent = (current + 1) + " of " + pictures.length;
}}
function play() {{
  timer = timer ? clearInterval(timer) : setInterval(() => show(current + 1), {milliseconds});
  document.getElementById("play").textContent = timer ? "Stop" : "Play";
}}
document.getElementById("back").onclick = () => show(current - 1);
document.getElementById("next").onclick = () => show(current + 1);
document.getElementById("play").onclick = play;
document.onkeydown = event => {{
  if (event.key === "ArrowLeft") show(current - 1);
  if (event.key === "ArrowRight") show(current + 1);
}};
show(0);
</script></body></html>
"""


def write(file: str, figures: Sequence[Any]) -> None:
    """Writes the figures, all of one size, to an .html or a .gif file."""
    if Path(file).suffix.lower() == ".gif":
        _write_gif(file, figures)
    else:
        page = _PAGE.format(images="\n".join(map(_image, figures)), milliseconds=int(SECONDS * 1000))
        Path(file).write_text(page, encoding="utf-8")


def _image(figure: Any) -> str:
    svg = io.BytesIO()
    figure.savefig(svg, format="svg")
    return f'<img alt="one round" src="data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}">'


def _write_gif(file: str, figures: Sequence[Any]) -> None:
    from matplotlib.animation import PillowWriter

    writer: Any = PillowWriter(fps=1 / SECONDS)  # type: ignore[arg-type]  # a fraction is valid
    writer.setup(figures[0], file, dpi=100)
    for figure in figures:
        writer.fig = figure
        writer.grab_frame()
    writer.finish()
