"""README is short, and the citation is that of the project."""

import tomllib

import yaml

from tests.conftest import REPOSITORY
from tests.pages import README


def test_it_is_a_first_screen_and_a_tour():
    assert len(README.read_text("utf-8").splitlines()) < 200


def test_the_citation_is_that_of_the_project():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["cff-version"], citation["license"]) == ("1.2.0", project["license"])
    assert citation["version"] == project["version"]
