"""The manual tells the truth: its code runs, its links lead somewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest

from resilience import Registry, use_registry

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
NO_RUN = "<!-- no-run -->"
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*).*$")
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language and text, where its first line stands, and whether it is only compiled."""

    language: str
    text: str
    line: int
    run: bool


def read_page(text: str) -> tuple[list[Block], list[str]]:
    """The fenced blocks of a page, and its lines of prose."""
    blocks: list[Block] = []
    prose: list[str] = []
    opened: re.Match[str] | None = None
    inside: list[str] = []
    start, run = 0, True
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None:
            fence = FENCE.match(line)
            if fence is None:
                prose.append(line)
                continue
            opened, inside, start = fence, [], number + 1
            run = not (prose and prose[-1].strip() == NO_RUN)
        elif line.strip() == opened["ticks"]:
            blocks.append(Block(opened["language"], "\n".join(inside), start, run))
            opened = None
        else:
            inside.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        raise ValueError(f"the block that begins in line {start - 1} never ends")
    return blocks, prose


def run_blocks(blocks: list[Block], name: str) -> None:
    """Run the python blocks in order, in one namespace; errors show the page and its line."""
    namespace = {"__name__": "page"}
    for block in blocks:
        if block.language != "python":
            continue
        code = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
        if block.run:
            exec(code, namespace)


def anchors(prose: list[str]) -> set[str]:
    """What the headings of a page can be linked by."""
    found = set()
    for line in prose:
        if heading := HEADING.match(line):
            text = re.sub(r"[^\w\- ]", "", heading["text"].replace("`", "")).strip().lower()
            found.add(re.sub(r"[ -]+", "-", text))
    return found


def broken_links(page: Path, prose: list[str]) -> list[str]:
    """Targets of links within the tree that are not there."""
    broken = []
    for target in (link["target"] for line in prose for link in LINK.finditer(re.sub(r"`[^`]*`", "", line))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (
            anchor and there.suffix == ".md" and anchor not in anchors(read_page(there.read_text(encoding="utf-8"))[1])
        ):
            broken.append(target)
    return broken


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_code_blocks_run(page):
    """What a reader copies from the page works, from its first block to its last."""
    blocks, _ = read_page(page.read_text(encoding="utf-8"))
    with use_registry(Registry()):
        run_blocks(blocks, str(page))


@every_page
def test_internal_links_lead_somewhere(page):
    """No link within the manual is dead, neither its file nor its heading."""
    _, prose = read_page(page.read_text(encoding="utf-8"))

    assert [] == broken_links(page, prose)


def test_policy_pages_have_the_same_headings():
    """Who knows one policy page finds their way on the next."""
    wanted = ["What it is for", "Usage", "Defaults", "Events", "Diagram", "Do and don't"]
    pages = sorted((DOCS / "policies").glob("*.md"))

    assert pages
    for page in pages:
        _, prose = read_page(page.read_text(encoding="utf-8"))
        assert wanted == [line[3:] for line in prose if line.startswith("## ")], page.name


def test_every_page_can_be_reached():
    """A page that the navigation does not name is lost."""
    listed = set(re.findall(r"^ *- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))

    assert listed == {str(page.relative_to(DOCS)) for page in PAGES if page.is_relative_to(DOCS)}


def test_a_failing_block_is_found():
    """A wrong claim on a page fails, and the traceback names its line."""
    blocks, _ = read_page("text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")

    with pytest.raises(AssertionError) as caught:
        run_blocks(blocks, "page.md")
    assert 8 == caught.traceback[-1].lineno + 1


def test_a_marked_block_is_only_compiled():
    """`<!-- no-run -->` keeps a block from running, yet its syntax is checked."""
    blocks, _ = read_page(f"{NO_RUN}\n```python\nassert False\n```\n")
    run_blocks(blocks, "page.md")

    broken, _ = read_page(f"{NO_RUN}\n```python\nthis is no code\n```\n")
    with pytest.raises(SyntaxError):
        run_blocks(broken, "page.md")


def test_other_languages_do_not_run():
    """Shell lines and diagrams are not code of ours."""
    blocks, _ = read_page("```sh\nrm everything\n```\n")
    run_blocks(blocks, "page.md")

    assert ["sh"] == [block.language for block in blocks]


def test_an_open_block_is_found():
    """A fence that never closes would hide the rest of the page."""
    with pytest.raises(ValueError, match="line 1"):
        read_page("```python\nx = 1\n")


def test_a_dead_link_is_found(tmp_path):
    """Missing files and missing headings are both found; addresses outside are left alone."""
    (tmp_path / "there.md").write_text("# A `name` of it\n")
    prose = [
        "[a](there.md) [b](there.md#a-name-of-it) [c](https://example.org/x)",
        "[d](gone.md) [e](there.md#gone) `[f](code.md)`",
    ]

    assert ["gone.md", "there.md#gone"] == broken_links(tmp_path / "here.md", prose)
