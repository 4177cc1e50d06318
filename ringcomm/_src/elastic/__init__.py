"""Elastic training: `driver` runs in ringrun, `agent` on each host, and `member` in each rank.

`driver` decides which ranks the job has, `agent` starts and watches them, and `member` saves and
restores the state of training.
"""
