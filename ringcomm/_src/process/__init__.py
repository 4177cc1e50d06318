"""The end of a process, and how its peers learn of it."""
