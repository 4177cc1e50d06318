"""Starts a program on ranks, for `ringrun` and `ringcomm.run`.

options.py parses the command line. settings.py makes the environment of the ranks, hosts.py the
list of hosts, and job.py joins both. lines.py builds the command line of each MPI's launcher.
start.py runs the launcher and watches it. rank.py runs between the launcher and each rank's
program.
"""
