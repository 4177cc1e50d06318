"""Elastic training: the driver runs in ringrun, an agent runs on each host, and each rank is a member.

`driver` decides which ranks the job has, `agent` starts and watches them, and `member` saves and
restores the state of training.
"""
