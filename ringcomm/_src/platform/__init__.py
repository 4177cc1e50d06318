"""Loads the MPI library, connects ranks, finds out which ranks share a host, and binds ranks to cores."""
