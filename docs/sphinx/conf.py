"""How the documents are built (`make docs`): the Markdown that forges show, as pages with contents and a search.

The source directory is the root of the repository, so links between docs/, README.md and the code are those that
forges follow. docs/README.md is the index, and its tables are the table of contents: what it links, in its order,
under its headings. Links to directories, which forges show and a built page cannot, stay as words.
"""

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
INDEX = "docs/README"

project = "Moorage"
extensions = ["myst_parser"]
root_doc = INDEX
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "docs/*/*/*.md",
    "tests/*.md",
    "tests/*/README.md",
    "bench/README.md",
]
exclude_patterns = [".*", "build", "dist", "src", "**/__pycache__"]
nitpicky = True
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Moorage"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def contents(directory: Path, text: str) -> str:
    """Hidden tables of contents: the index has one for each heading, the evidence the pages that it links, and any
    other README the pages beside it.
    """
    trees = {}
    if directory == ROOT / "docs":
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            title, _, body = section.partition("\n")
            trees[f":caption: {title}"] = dict.fromkeys(re.findall(r"\]\(([^)#\s:]+\.md)\)", body))
    elif directory == ROOT / "docs" / "evidence":
        trees[":titlesonly:"] = dict.fromkeys(re.findall(r"\]\(([^)#\s:]+\.md)\)", text))
    elif pages := [
        page
        for page in sorted([*directory.glob("*.md"), *directory.glob("*/README.md")])
        if page != directory / "README.md"
    ]:
        trees[":titlesonly:"] = [str(page.relative_to(directory)) for page in pages]
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", option, "", *pages, "```", ""]) for option, pages in trees.items()
    )


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    path = ROOT / f"{docname}.md"
    if path.stem == "README" and path.parent != ROOT:
        source[0] += contents(path.parent, source[0])
    source[0] = re.sub(
        r"\[([^\]]+)\]\(([^):#\s]+)\)", lambda link: link[1] if (path.parent / link[2]).is_dir() else link[0], source[0]
    )


def point_to_index(app: Sphinx, failure: Exception | None) -> None:
    """The page that a browser opens first."""
    refresh = '<meta http-equiv="refresh" content="0; url=docs/README.html">'
    page = f'<!doctype html><meta charset="utf-8"><title>Moorage</title>{refresh}'
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", prepare)
    app.connect("build-finished", point_to_index)
    # Requests as guides show them, several to a block, are no HTTP messages.
    app.add_lexer("http", TextLexer)
    # Pygments has none for it.
    app.add_lexer("haproxy", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
