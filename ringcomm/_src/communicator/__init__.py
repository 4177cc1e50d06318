"""The communicator, with MPI's semantics: collectives, messages, persistent calls, neighbourhoods, user ops, groups."""
