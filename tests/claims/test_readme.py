"""README is short, and what it quotes is what its sources have."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from types import ModuleType

import pytest
import yaml

from lmkit.presentation.published import published_section
from lmkit.runs.names import family_of
from tests.conftest import REPOSITORY
from tests.pages import README

TEXT = README.read_text("utf-8")


@pytest.fixture
def pictures() -> ModuleType:
    """The script that writes README's table."""
    spec = importlib.util.spec_from_file_location("pictures", REPOSITORY / "docs/pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_a_first_screen_and_a_tour():
    assert len(TEXT.splitlines()) < 200


def test_the_table_of_heads_quotes_what_was_published(pictures):
    table = TEXT.partition(pictures.BEGINS)[2].partition(pictures.ENDS)[0]
    assert pictures.with_table(TEXT, table) == TEXT
    assert pictures.with_table(TEXT, "| new |\n").count("| new |") == 1
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    assert len(rows) > 1
    for head, _, _, ppl, rank in rows:
        facts = published_section("runs")[f"penn_{family_of(head.partition(',')[0])}"]
        assert ppl == f"{facts['test_ppl']['value'][0]:.2f}"
        assert rank == f"{facts['press_rank']['value'][0]:,}"


def test_citations_agree():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["cff-version"], citation["license"]) == ("1.2.0", project["license"])
    assert citation["version"] == project["version"]
    bibtex = re.search(r"```bibtex\n(.*?)```", TEXT, re.DOTALL)
    assert bibtex is not None
    plain = re.sub(r"[{}]", "", bibtex[1])
    assert f"version = {citation['version']}" in plain
    for paper in (citation, *citation["references"]):
        assert f"title = {paper['title']}," in plain
    for paper in citation["references"]:
        assert f"{paper['authors'][0]['family-names'].lower()}{paper['year']}," in plain
