"""Checks the names of output files before a command begins its work."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ringcomm._src.base.installed import missing_message

ANIMATIONS = ("gif", "html")


def output_trouble(json_file: str | None, *pictures: str | None, option: str = "--plot") -> str | None:
    """Returns the reason why an output file cannot be written, or None.

    Parameters
    ----------
    json_file : str | None
        A file with any name; None: no file.
    *pictures : str | None
        Files in formats that matplotlib writes; None: no file.
    option : str
        The option that names the pictures, for the message.
    """
    for file in pictures:
        if file is not None and (trouble := missing_message("matplotlib", option) or _wrong_name(file, _formats())):
            return trouble
    return next(filter(None, (_no_folder(file) for file in (json_file, *pictures) if file is not None)), None)


def animation_trouble(file: str | None) -> str | None:
    """Returns the reason why an animation cannot be written to the file, or None."""
    if file is None:
        return None
    return missing_message("matplotlib", "--animate") or _wrong_name(file, ANIMATIONS) or _no_folder(file)


def _formats() -> Collection[str]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return set(FigureCanvasAgg.get_supported_filetypes()) - {"pgf"}  # which needs LaTeX


def _wrong_name(file: str, formats: Collection[str]) -> str | None:
    if Path(file).suffix[1:].lower() in formats:
        return None
    return f"{file} does not end in a known format: use {', '.join(f'.{name}' for name in sorted(formats))}"


def _no_folder(file: str) -> str | None:
    folder = Path(file).absolute().parent
    if Path(file).is_dir():
        return f"{file} is a folder: name a file"
    return None if folder.is_dir() else f"the folder {folder} does not exist: create it first"
