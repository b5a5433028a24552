"""Tests that import client libraries are collected only where these are installed: see `make catalogue`."""

from __future__ import annotations

from importlib.util import find_spec

# One that nobody has by accident.
collect_ignore = [] if find_spec("httpx2") and find_spec("botocore") else ["test_live.py", "test_streaming.py"]
