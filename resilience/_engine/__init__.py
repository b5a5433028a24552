"""The engine: worlds that perform plans, and the compiled straight path for calls in good health."""
