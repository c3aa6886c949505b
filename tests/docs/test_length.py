"""Newcomers can read their path in an afternoon: README, the first hour, concepts, guides, and the reference by
name.
"""

import re

from tests.docs.named import ROOT

DOCS = ROOT / "docs"
PATH = [
    ROOT / "README.md",
    DOCS / "README.md",  # it names the pages of the reference
    DOCS / "first-hour.md",
    DOCS / "concepts.md",
    *sorted((DOCS / "guides").glob("*.md")),
]
_HIDDEN = re.compile(r"<!--.*?-->|^ *```.*?^ *```$|(?<=\])\([^)]*\)", re.DOTALL | re.MULTILINE)


def words(text: str) -> int:
    """Words that a person reads: tables and inline code count; blocks of code, comments and addresses of links do
    not.
    """
    return len(re.findall(r"[^\s|]*\w[^\s|]*", _HIDDEN.sub("", text)))


def test_blocks_of_code_and_comments_are_not_counted_as_words():
    text = "Two words\n<!-- not run: WHY -->\n```sh\nnot these\n```\n| [a link](of/a/page.md) | `code` |\n"
    assert words(text) == 5


def test_the_pages_for_newcomers_have_at_most_25_000_words():
    counted = {str(page.relative_to(ROOT)): words(page.read_text()) for page in PATH}
    assert len(counted) > 20
    assert sum(counted.values()) <= 25_000, counted


def test_the_architecture_has_at_most_2_500_words():
    assert words((ROOT / "ARCHITECTURE.md").read_text()) <= 2_500
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= 2_500, "with its picture and flows"


def test_concepts_explain_sixty_words():
    terms = re.findall(r"^\| (?!word|-)(.+?) \| .+ \|$", (DOCS / "concepts.md").read_text(), re.MULTILINE)
    assert len(terms) >= 60
    assert len(set(terms)) == len(terms)
