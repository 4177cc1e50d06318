"""From a Python call to the core's request."""
