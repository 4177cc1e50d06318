"""The parts of a training step that all frameworks share: plans, agreement, replica checks."""
