"""What the help of `lmkit report` promises of its options, over runs made by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.runs.checksums import checked_json

pytestmark = pytest.mark.usefixtures("undrawn")

STUDY = {
    "experiment": "rank_bounds",
    "config": {"seed": 3, "options": {"tied": True, "switches": [True, 0]}},
    "claims": [],
    "figures": [],
    "schema_version": 3,
    "tables": {},
    "cost": {},
    "provenance": {},
}


@pytest.fixture
def page(tmp_path: Path, lmkit: Callable[..., None], make_run) -> Callable[..., str]:
    """The page of `lmkit report ARGUMENTS`, beside a run and a study in `runs`."""
    make_run(tmp_path / "runs", 1)
    study = tmp_path / "runs" / "synthetic" / "rank_bounds-01" / "synthetic.json"
    study.parent.mkdir(parents=True)
    study.write_bytes(checked_json(STUDY))

    def read(*arguments: str) -> str:
        lmkit("report", *arguments)
        return (tmp_path / "report" / "index.html").read_text()

    return read


@pytest.mark.parametrize("sections", ["rank", "[rank]"])
def test_a_section_may_be_named_by_a_text_or_in_a_list(page, capsys, sections):
    html = page("runs=runs", f"sections={sections}")
    assert 'id="penn-rank"' in html
    assert 'id="penn-runs"' not in html
    assert "left out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value"), [("sections", "5"), ("sections", "[rank,5]"), ("synthetic", "[5]")]
)
def test_what_names_nothing_is_refused_by_its_option(page, refused, option, value):
    assert refused("report", "runs=runs", f"{option}={value}").startswith(f"{option} must name ")


def test_sections_without_anything_measured_stand_in_one_list(page):
    html = page("runs=runs")
    assert '<a href="#penn-performance">Performance</a>' in html
    assert '<a href="#penn-embeddings">' not in html
    (unmeasured,) = re.findall(r'id="penn-not-measured">.*?</ul>', html, re.DOTALL)
    assert re.search(r'<li id="penn-embeddings"><b>Embeddings</b>: .*lmkit embeddings', unmeasured)
    assert f"Not measured ({unmeasured.count('<li')})</a>" in html


def test_options_that_are_true_or_false_are_shown_so(page, tmp_path, make_run):
    make_run(tmp_path / "runs", 1, options={"head.tie_weights": False})
    html = page("runs=runs")
    assert "seed 3, tied true, switches [true, 0]." in html
    assert "tie weights true" in html
    assert "tie weights false" in html


def test_a_study_whose_name_is_no_text_is_left_out(page, tmp_path, capsys):
    damaged = tmp_path / "runs" / "synthetic" / "cost-02" / "synthetic.json"
    damaged.parent.mkdir()
    damaged.write_bytes(checked_json(STUDY | {"experiment": 5}))
    assert "Made-up distributions" in page("runs=runs", "sections=[runs]")
    assert "left out: cost-02: synthetic.json is damaged" in capsys.readouterr().out
