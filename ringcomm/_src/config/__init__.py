"""Defines the options of ringcomm: their table, their checks, and Horovod's names for them."""
