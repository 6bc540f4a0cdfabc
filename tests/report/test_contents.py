"""Which chapters and sections a report has."""

from __future__ import annotations

from lmkit.cli.entry import experiment_config
from lmkit.report.contents import make_report
from lmkit.runs.selection import select_runs


def test_a_chapter_without_any_of_the_wanted_sections_is_left_out(tmp_path, make_run):
    make_run(tmp_path / "runs", 1)

    def page(key: str) -> str:
        report = make_report(
            select_runs("runs", str(tmp_path / "runs")).runs,
            analyses=[],
            experiments=experiment_config,
            baseline="softmax",
            window=None,
            out=tmp_path / "out",
            keys=[key],
        )
        return report.page.read_text()

    assert "Penn Treebank</h2>" in page("performance")
    assert "Penn Treebank</h2>" not in page("pretrained")
