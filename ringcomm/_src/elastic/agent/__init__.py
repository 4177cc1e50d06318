"""The agent: one process a host that outlives the trainers of an elastic job, and what it starts and keeps there.

It stands outside of the MPI job. `start.py` is run by its file's name and loads the rest without ringcomm itself, so
all of this folder but `zygote`, which is the ranks' interpreter, imports nothing but the standard library.
"""
