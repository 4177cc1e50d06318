"""The communicator: collectives, messages, persistent calls, neighbourhoods, user ops, groups."""
