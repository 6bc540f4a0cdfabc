"""Which chapters and sections a report has."""

from __future__ import annotations

import pytest

from lmkit.cli.entry import experiment_config
from lmkit.errors.user_error import UserError
from lmkit.report.contents import make_report
from lmkit.runs.selection import select_runs


def test_sections_that_are_not_there_are_refused(tmp_path, make_run):
    make_run(tmp_path / "runs", 1)

    def page(*keys: str) -> str:
        report = make_report(
            select_runs("runs", str(tmp_path / "runs")).runs,
            analyses=[],
            experiments=experiment_config,
            baseline="softmax",
            window=None,
            out=tmp_path / "out",
            keys=keys,
        )
        return report.page.read_text()

    assert "Penn Treebank</h2>" in page("performance")
    assert "pretrained</b>: there is no such section" in page("performance", "pretrained")
    with pytest.raises(UserError, match="sections=pretrained: there is no such section; there are"):
        page("pretrained")
