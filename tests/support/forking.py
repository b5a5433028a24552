"""Running a check in a forked child."""

from __future__ import annotations

import os
import select

import pytest

SECONDS = 5


def needs_fork(test):
    """Skip a test where there is no fork, and bear Python's own warning about threads beside one."""
    test = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")(test)


def in_child(check):
    """Run `check` in a forked child: "ok", the text of its exception, or that it hangs."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            try:
                check()
                report = b"ok"
            except BaseException as error:
                report = f"{type(error).__name__}: {error}".encode()[:4000]
            os.write(writing, report)
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], SECONDS)
    report = os.read(reading, 4096) if ready else b"the child hangs"
    os.close(reading)
    if not ready:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    return report.decode()
