"""Links between the pages lead somewhere, README is short, and the citation is the project's."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.pages import README

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
ELSEWHERE = ("http://", "https://", "mailto:")
SOURCE = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("[!.]*/**/*.md")]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes links of them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text("utf-8")), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def broken(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for groups in LINK.findall(without_code(page.read_text("utf-8"))):
        link = "".join(groups)
        if link.startswith(ELSEWHERE):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", SOURCE, ids=[str(p.relative_to(REPOSITORY)) for p in SOURCE])
def test_every_link_leads_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '# A page: of §1\n[a](page.md#a-page-of-1) [b](no.md) ![c](#no) <img src="n">\n'
    )
    assert broken(page) == ["no.md", "#no", "n"]


def test_the_readme_is_a_first_screen_and_a_tour():
    assert len(README.read_text("utf-8").splitlines()) < 200


def test_the_citation_is_that_of_the_project():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["cff-version"], citation["license"]) == ("1.2.0", project["license"])
    assert citation["version"] == project["version"]
