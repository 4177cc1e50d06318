"""The extension module `_core`: csrc, and what lies between it and Python."""
