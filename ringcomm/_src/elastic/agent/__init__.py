"""The agent of an elastic job: one process per host, outside of the MPI job, that outlives the trainers.

`start.py` runs by its file name and loads the other modules without the package ringcomm. Therefore
all modules here import the standard library only, except `zygote`, which runs in the ranks'
interpreter.
"""
