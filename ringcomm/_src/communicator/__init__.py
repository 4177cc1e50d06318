"""MPI's semantics: collectives, messages, persistent and neighbourhood operations, user-defined reductions, groups."""
