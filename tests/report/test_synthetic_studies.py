"""Studies without a language model in the report."""

from __future__ import annotations

from pathlib import Path

from lmkit.report.page import Chapter, write_report
from lmkit.report.synthetic_studies import synthetic_studies
from lmkit.runs.checksums import checked_json

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
CLAIMS = [
    {"claim": "a < b", "holds": True, "evidence": "1 & 2", "source": "Orhan"},
    {"claim": "c", "holds": False, "evidence": "3", "source": "Ganea"},
]


def write_study(runs: Path, name: str, content: bytes) -> None:
    folder = runs / "synthetic" / name
    folder.mkdir(parents=True)
    (folder / "synthetic.json").write_bytes(content)
    (folder / "ranks.svg").write_bytes(SVG)


def test_claims_and_figures_of_each_study_are_on_the_page(tmp_path):
    content = {"experiment": "rank_bounds", "claims": CLAIMS, "figures": ["ranks.svg"]}
    write_study(tmp_path / "runs", "rank_bounds-01", checked_json(content))
    sections, left_out = synthetic_studies([f"{tmp_path}/runs/synthetic/*"])
    assert left_out == []
    (section,) = sections
    picture, table = section.blocks
    assert picture.svg == SVG
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["a < b", "yes", "1 & 2", "Orhan"],
        ["c", "no", "3", "Ganea"],
    ]
    chapters = [Chapter("isolation", "Isolation", [], sections)]
    page = write_report(tmp_path / "out", "Title", "", chapters, [])
    html = page.read_text()
    assert "1 of 2 claims hold here" in html
    assert "a &lt; b" in html
    assert 'src="data:image/svg+xml;base64,' in html
    assert (tmp_path / "out" / "figures" / "rank_bounds-01_ranks.svg").read_bytes() == SVG


def test_a_damaged_study_is_left_out_with_the_reason(tmp_path):
    write_study(tmp_path, "cost-02", b'{"experiment": "cost"')
    write_study(tmp_path, "cost-03", checked_json({"experiment": "cost", "figures": []}))
    sections, left_out = synthetic_studies([f"{tmp_path}/synthetic/*"])
    assert sections == []
    assert [each.name for each in left_out] == ["cost-02", "cost-03"]
    assert all("synthetic.json is damaged" in each.reason for each in left_out)


def test_a_folder_without_studies_has_no_section(tmp_path):
    assert synthetic_studies([f"{tmp_path}/synthetic/*"]) == ([], [])
