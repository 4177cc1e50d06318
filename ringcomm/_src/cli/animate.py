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
:root {{ color-scheme: light dark }}
body {{ font-family: sans-serif; text-align: center; margin: 1em }}
img {{ display: none; box-sizing: border-box; width: 100%; max-width: 80em; max-height: calc(100vh - 5em);
  object-fit: contain; margin: 0.7em auto; padding: 0.5em; background: white; border-radius: 0.5em }}
img.shown {{ display: block }}
button {{ font-size: 1em; min-width: 5em }} input, span {{ vertical-align: middle }}
</style></head><body>
<button id="back" title="left arrow">Back</button> <button id="play" title="space">Play</button>
<button id="next" title="right arrow">Next</button>
<input id="slider" type="range" min="0" max="{last}" value="0" aria-label="picture"> <span id="number"></span>
{images}
<script>
const pictures = document.querySelectorAll("img"), at = id => document.getElementById(id);
let current = 0, timer = null;
function show(index) {{
  pictures[current].classList.remove("shown");
  current = (index + pictures.length) % pictures.length;
  pictures[current].classList.add("shown");
  at("number").textContent = "picture " + (current + 1) + " of " + pictures.length;
  at("slider").value = current;
}}
function play() {{
  timer = timer ? clearInterval(timer) : setInterval(() => show(current + 1), {milliseconds});
  at("play").textContent = timer ? "Stop" : "Play";
}}
at("back").onclick = () => show(current - 1);
at("next").onclick = () => show(current + 1);
at("play").onclick = play;
at("slider").oninput = () => show(Number(at("slider").value));
document.onkeydown = event => {{
  if (event.target.tagName === "INPUT") return;
  if (event.key === "ArrowLeft") show(current - 1);
  if (event.key === "ArrowRight") show(current + 1);
  if (event.key === " " && event.target === document.body) play();
}};
show(0);
</script></body></html>
"""


def write(file: str, figures: Sequence[Any]) -> None:
    """Writes the figures, all of one size, to an .html or a .gif file."""
    if Path(file).suffix.lower() == ".gif":
        _write_gif(file, figures)
    else:
        images = "\n".join(_image(figure, number) for number, figure in enumerate(figures, 1))
        page = _PAGE.format(images=images, last=len(figures) - 1, milliseconds=int(SECONDS * 1000))
        Path(file).write_text(page, encoding="utf-8")


def _image(figure: Any, number: int) -> str:
    svg = io.BytesIO()
    figure.savefig(svg, format="svg")
    return f'<img alt="picture {number}" src="data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}">'


def _write_gif(file: str, figures: Sequence[Any]) -> None:
    from matplotlib.animation import PillowWriter

    writer: Any = PillowWriter(fps=1 / SECONDS)  # type: ignore[arg-type]  # a fraction is valid
    writer.setup(figures[0], file, dpi=100)
    for figure in figures:
        writer.fig = figure
        writer.grab_frame()
    writer.finish()
