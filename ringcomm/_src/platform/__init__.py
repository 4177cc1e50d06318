"""MPI's library, connections between ranks, hosts and cores."""
