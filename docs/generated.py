"""Parts of pages that are written from the code, between two markers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Part(NamedTuple):
    """A part of a page that has an author of its own.

    Attributes:
        page: the file.
        begin, end: the comments around the part.
    """

    page: Path
    begin: str
    end: str

    def placed(self, page: str, text: str) -> str:
        """The page with this text between its markers."""
        pattern = re.compile(f"{re.escape(self.begin)}\n.*?{re.escape(self.end)}", re.DOTALL)
        replaced, places = pattern.subn(lambda _: f"{self.begin}\n{text}\n{self.end}", page)
        if places != 1:
            raise ValueError(f"the page must have the markers once, found {places}")
        return replaced

    def write(self, text: str, arguments: list[str]) -> int:
        """Write the page, or with `--check` only tell by 1 that it is not as it should be."""
        old = self.page.read_text(encoding="utf-8")
        new = self.placed(old, text)
        if "--check" in arguments:
            return int(old != new)
        self.page.write_text(new, encoding="utf-8")
        return 0
