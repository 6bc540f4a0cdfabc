"""README is short, and what it quotes is what its sources have."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.conftest import REPOSITORY
from tests.pages import README

TEXT = README.read_text("utf-8")


def test_it_is_a_first_screen_and_a_tour():
    assert len(TEXT.splitlines()) < 200


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
