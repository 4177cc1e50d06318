"""Records what ringcomm does: timeline, events and statistics."""
