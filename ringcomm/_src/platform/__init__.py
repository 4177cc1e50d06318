"""Loads the MPI library, connects ranks, finds ranks that share a host, binds ranks to cores."""
