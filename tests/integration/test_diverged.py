"""Runs that diverge: what is kept of them, and what they end with."""

from __future__ import annotations

import json
import math

from lmkit.cli.entry import compose, plain_config
from lmkit.evaluation.full_run import run
from lmkit.runs.folder import RunFolder
from tests.integration.conftest import TINY


def trained(runs_dir, *overrides: str) -> RunFolder:
    return run(plain_config(compose("train", [*TINY, f"runs_dir={runs_dir}", *overrides])))


def test_a_run_of_infinite_perplexity_finishes_with_its_first_epoch(tmp_path, lmkit):
    folder = trained(tmp_path, "optimizer.lr=1e5")
    metrics = folder.read_result().metrics
    assert metrics["best_epoch"] == 1
    assert metrics["valid_ppl"] == metrics["test_ppl"] == math.inf
    assert 710 < metrics["test_nll"] < math.inf
    assert "test perplexity infinite, of epoch 1" in folder.log.read_text()
    lmkit("rank", f"run={folder.path}", "contexts=100")
    (file,) = folder.analysis.glob("rank_*.json")
    assert json.loads(file.read_text())["test_ppl"] is None
