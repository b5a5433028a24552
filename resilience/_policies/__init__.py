"""The policies: frozen settings, the shared machine behind its lock, and the plan of each layer."""
