"""Makes the cards of docs/examples.md from the examples, and records the output of examples.

    python docs/write_gallery.py examples/train_digits.py ...

runs the first command in the docstring of each script, and writes the last lines of its output to
docs/outputs. conf.py calls `cards` when it builds the site.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = ROOT / "docs" / "outputs"
COMMAND = re.compile(r"^ *((?:\w+=\S+ )*(?:mpirun|mpiexec|ringrun|ringcomm|python) .*)$", re.MULTILINE)
LINES = 6  # at the end of an output


def described(example: Path) -> tuple[str, list[str]]:
    """Returns what an example does, in one sentence, and its commands."""
    text = example.read_text(encoding="utf-8")
    if example.suffix == ".ipynb":
        title = "".join(json.loads(text)["cells"][0]["source"]).partition("\n")[0]
        return title.lstrip("# 0123456789."), [f"jupyter lab {example.relative_to(ROOT)}"]
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return docstring.partition("\n")[0], COMMAND.findall(docstring)


def cards(lines: str) -> str:
    """Returns a grid in MyST with a card for each line: an example, and its picture if it has one."""
    parts = ["::::{grid} 1 1 2 2", ":gutter: 3"]
    for name, *pictures in map(str.split, lines.splitlines()):
        example = ROOT / name
        sentence, commands = described(example)
        parts += [f":::{{grid-item-card}} [{example.name}](../{name})", sentence]
        parts += [f"\n![{sentence}]({picture})" for picture in pictures]
        parts += ["```sh", *commands, "```"]
        if (output := OUTPUTS / f"{example.stem}.txt").exists():
            parts += ["```", output.read_text(encoding="utf-8").rstrip(), "```"]
        parts.append(":::")
    return "\n".join([*parts, "::::"])


def main() -> None:
    for name in sys.argv[1:]:
        command = described(ROOT / name)[1][0]
        with tempfile.TemporaryDirectory() as folder:  # some examples write files
            (Path(folder) / "examples").symlink_to(ROOT / "examples")
            done = subprocess.run(command, shell=True, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
        kept = done.stdout.splitlines()[-LINES:]
        (OUTPUTS / f"{Path(name).stem}.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
