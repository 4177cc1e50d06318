"""The options: their table, their checks, and Horovod's names for them."""
