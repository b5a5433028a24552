"""The command without its extra: it says what to install. No part of this file needs rich-click."""

from __future__ import annotations

import pytest

WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in {blocked!r} or name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = ["resilience", "demo"]
from resilience.cli import main
main()
"""


@pytest.mark.slow
def test_what_to_install_is_said(run):
    """Without rich-click the command names the extra on standard error and exits with 2."""
    code, out, err = run("-c", WITHOUT.format(blocked={"rich_click", "rich", "click"}))

    assert (2, "") == (code, out)
    assert ["The command line needs one more package: pip install 'resilience-py[cli]'"] == err.splitlines()


@pytest.mark.slow
def test_a_broken_installation_is_no_missing_extra(run):
    """A module of ours that is gone is not answered with advice that would not help."""
    code, _, err = run("-c", WITHOUT.format(blocked={"resilience.cli.app"}))

    assert 1 == code
    assert "No module named 'resilience.cli.app'" in err
