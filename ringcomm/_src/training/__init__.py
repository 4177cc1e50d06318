"""The parts of a training step that all frameworks share: plans of buckets, agreement on plans, replica checks."""
