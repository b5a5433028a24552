"""The machines: pure decisions, with time and chance passed in."""
