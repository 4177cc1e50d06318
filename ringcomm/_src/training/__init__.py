"""One training step, for every framework: plans of buckets, agreement on them, lists of gradients, replica checks."""
