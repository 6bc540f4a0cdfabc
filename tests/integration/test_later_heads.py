"""Heads of classes of their own: a tiny run of each, described, ranked, its logits seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from lmkit.runs.metrics import MetricsFile

TINY = (
    *("trunk.emb_dim=6", "trunk.out_dim=6", "trunk.hidden_dim=8", "trunk.num_layers=2"),
    *("windows.bptt=20", "optimizer.lr=5", "data.num_words=40", "data.train_tokens=4000"),
    *("data.valid_tokens=500", "data.test_tokens=500", "max_epochs=2", "switch_epoch=1"),
    *("threads=1", "trainer.accelerator=cpu", "logger=csv"),
)
HEADS = {
    "mixtape": ("head=mixtape", "head.gate_dim=3", "head.own_share=0.25"),
    "doc": ("head/mixture=doc", "head.mixture.experts=[1,2,2]"),
}

GRADIENTS = (
    "callbacks=[default,gradient_bottleneck]",
    "callbacks.gradient_bottleneck.contexts=60",
)
WITHOUT_SHARE = ("mixtape",)  # no product of contexts with one decoder


@pytest.fixture
def shown(lmkit, tmp_path, monkeypatch, capsys) -> Callable[..., str]:
    """Types a line in an empty folder; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        capsys.readouterr()
        lmkit(*words)
        return capsys.readouterr().out

    return run


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("head", HEADS)
def test_a_head_trains_and_is_described_and_measured(tmp_path, shown, head):
    options = (*TINY, *HEADS[head])
    assert "total" in shown("describe", *options)
    shown("train", *options, *GRADIENTS, "callbacks.progress_bar=null")
    (result,) = (tmp_path / "runs").glob("*/result.json")
    metrics = json.loads(result.read_text())["metrics"]
    assert 1 < metrics["test_ppl"] < 45
    epochs = [
        row
        for row in MetricsFile(result.parent / "metrics.csv").read()
        if "gradient_bottleneck/valid_update_rank" in row
    ]
    assert len(epochs) == 2
    for row in epochs:
        assert 0 < row["gradient_bottleneck/valid_update_cosine"] < 1
        assert ("gradient_bottleneck/valid_share" in row) == (head not in WITHOUT_SHARE)
    ranks = shown("rank", f"run={result.parent}", "contexts=200")
    (file,) = (result.parent / "analysis").glob("rank_*.json")
    weight = json.loads(file.read_text())["weight_spectrum"]
    if head in WITHOUT_SHARE:
        assert weight is None
        assert re.search(r"decoder's entropy rank +│ – ", ranks)
    else:
        assert weight["press_rank"] == 6  # of the words' vectors: none is 0
        assert (weight["num_contexts"], weight["num_columns"]) == (40, 6)
    shown("logits", f"run={result.parent}", "contexts=100")


def test_the_command_measures_a_step_of_a_head_without_a_share(tmp_path, shown):
    shown("train", *TINY, *HEADS["mixtape"], "callbacks.progress_bar=null")
    table = shown("gradient_bottleneck", "run=runs", "contexts=60")
    assert re.search(r"share of the norm that passes +│ – ", table)
    (file,) = (tmp_path / "runs").glob("*/analysis/gradient_bottleneck.json")
    content = json.loads(file.read_text())
    assert (content["share"], content["decoder_rank"], content["update_bound"]) == (None,) * 3
    assert 0 < content["update_rank"] <= 40
    assert content["update_contexts"] == 60
