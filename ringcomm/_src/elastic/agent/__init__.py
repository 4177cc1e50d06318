"""The agent of an elastic job: one process per host, which outlives the trainers.

It is not part of the MPI job. `start.py` runs by its file name and loads the other modules without
the package ringcomm. Therefore all modules here import the standard library only, except `zygote`,
which runs in the ranks' interpreter.
"""
