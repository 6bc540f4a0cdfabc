"""Studies without a language model in the report."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lmkit.presentation.style import SERIES
from lmkit.report.page import Chapter, write_report
from lmkit.report.synthetic_studies import synthetic_studies
from lmkit.runs.checksums import checked_json

SVG = (
    f'<svg width="504pt" height="9pt" xmlns="http://www.w3.org/2000/svg"><path fill="{SERIES[0]}"/>'
    "</svg>"
)
CLAIMS = [
    {"claim": "a < b", "holds": True, "evidence": "1 & 2", "source": "Orhan",
     "figure": "ranks.svg"},
    {"claim": "c", "holds": False, "evidence": "3", "source": "Ganea", "figure": "other.svg"},
]  # fmt: skip
CONFIG = {
    "seed": 3,
    "options": {
        "_target_": "Study",
        "heads": [{"_target_": "FreeHead", "option": "none+gss"}],
        "steps": 2000,
        "dims": [1, 2],
    },
}
STUDY = {
    "schema_version": 3,
    "experiment": "rank_bounds",
    "config": CONFIG,
    "tables": {},
    "claims": CLAIMS,
    "figures": [],
    "figure_sha256": {},
    "cost": {},
    "provenance": {},
}


def write_study(runs: Path, name: str, content: bytes) -> Path:
    folder = runs / "synthetic" / name
    folder.mkdir(parents=True)
    (folder / "synthetic.json").write_bytes(content)
    (folder / "ranks.svg").write_text(SVG)
    return folder


def write_page(tmp_path: Path, **content: object) -> tuple[str, Path]:
    study = STUDY | content
    folder = write_study(tmp_path / "runs", "rank_bounds-01", checked_json(study))
    (folder / "ranks.pdf").write_bytes(b"%PDF")
    sections, left_out = synthetic_studies([f"{tmp_path}/runs/synthetic/*"])
    assert left_out == []
    chapters = [Chapter("isolation", "Isolation", None, sections)]
    page = write_report(tmp_path / "out", "Title", "", chapters, [])
    return page.read_text(), tmp_path / "out"


def test_claims_stand_on_the_page_with_the_settings_that_they_were_measured_with(tmp_path):
    html, _ = write_page(tmp_path, figures=[])
    settings = "seed 3, heads [none+gss], steps 2,000, dims [1, 2]"
    assert f"1 of 2 claims holds with these settings: {settings}." in html
    assert "a &lt; b" in html
    assert "1 &amp; 2" in html
    assert "Made-up distributions" in html


def test_a_figure_has_number_caption_files_and_the_pages_colours(tmp_path):
    html, out = write_page(tmp_path, figures=["ranks.svg"])
    assert "Figure 1. Rank bounds: ranks." in html
    assert "“a &lt; b”: holds here" in html
    assert "“c”" not in html  # another figure shows it
    assert 'fill="var(--s0)"' in html
    assert 'class="wide"' in html
    assert (out / "figures" / "rank_bounds-01_ranks.svg").read_text() == SVG
    assert (out / "figures" / "rank_bounds-01_ranks.pdf").read_bytes() == b"%PDF"
    assert 'href="figures/rank_bounds-01_ranks.pdf"' in html


def test_a_damaged_study_is_left_out_with_the_reason(tmp_path):
    write_study(tmp_path, "cost-02", b'{"experiment": "cost"')
    write_study(tmp_path, "cost-03", checked_json({"experiment": "cost", "figures": []}))
    sections, left_out = synthetic_studies([f"{tmp_path}/synthetic/*"])
    assert sections == []
    assert [each.name for each in left_out] == ["cost-02", "cost-03"]
    assert all("synthetic.json is damaged" in each.reason for each in left_out)


@pytest.mark.parametrize("file", ["ranks.svg", "ranks.pdf"])
def test_a_study_whose_figure_is_damaged_is_left_out_and_the_figure_named(tmp_path, file):
    sha256 = {"ranks.svg": SVG.encode(), "ranks.pdf": b"%PDF"}
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in sha256.items()}
    study = STUDY | {"figures": ["ranks.svg"], "figure_sha256": sha256}
    folder = write_study(tmp_path, "rank_bounds-01", checked_json(study))
    (folder / "ranks.pdf").write_bytes(b"%PDF")
    assert len(synthetic_studies([str(folder)])[0]) == 1
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content.replace(b"D", b"d").replace(b"504", b"505"))
    sections, (left_out,) = synthetic_studies([str(folder)])
    assert sections == []
    assert left_out.name == "rank_bounds-01"
    assert left_out.reason.startswith(f"{file} is damaged: it is not what was written")


def test_a_folder_without_studies_has_no_section(tmp_path):
    assert synthetic_studies([f"{tmp_path}/synthetic/*"]) == ([], [])
