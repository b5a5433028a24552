"""From a function and its policies to what runs.

`fitting` asks whether the function can carry them, `parts` binds them to their shared
machines, `runner` drives the plan, `closure` fills the straight path, `telling` says
what came of it.
"""

from resilience._assembly.assembly import Assembly
from resilience._assembly.closure import NOT_YET

__all__ = ["NOT_YET", "Assembly"]
