"""Elastic training: `agent` runs once a host, `driver` in ringrun, `member` in each rank."""
