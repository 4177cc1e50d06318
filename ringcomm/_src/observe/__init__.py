"""Timeline, events and statistics."""
