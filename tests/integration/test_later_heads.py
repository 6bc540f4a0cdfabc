"""Heads of classes of their own: a tiny run of each, described, ranked, its logits seen."""

import json
import re

import pytest

from lmkit.runs.metrics import MetricsFile
from tests.tiny import SMALL

TINY = (*SMALL, "trunk.num_layers=2", "data.num_words=40", "optimizer.lr=5", "max_epochs=2")
HEADS = {
    "mixtape": ("head=mixtape", "head.gate_dim=3", "head.own_share=0.25"),
    "doc": ("head/mixture=doc", "head.mixture.experts=[1,2,2]"),
}

GRADIENTS = "callbacks=[default,gradient_bottleneck]", "callbacks.gradient_bottleneck.contexts=60"
WITHOUT_SHARE = ("mixtape",)  # no product of contexts with one decoder


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("head", HEADS)
def test_a_head_trains_and_is_described_and_measured(tmp_path, monkeypatch, lmkit, head):
    monkeypatch.chdir(tmp_path)
    options = (*TINY, *HEADS[head])
    assert "total" in lmkit("describe", *options)
    lmkit("train", *options, *GRADIENTS)
    (result,) = (tmp_path / "runs").glob("*/result.json")
    metrics = json.loads(result.read_text())["metrics"]
    assert 1 < metrics["test_ppl"] < 40  # the number of words
    epochs = [
        row
        for row in MetricsFile(result.parent / "metrics.csv").read()
        if "gradient_bottleneck/valid_update_rank" in row
    ]
    assert len(epochs) == 2
    for row in epochs:
        assert 0 < row["gradient_bottleneck/valid_update_cosine"] < 1
        assert ("gradient_bottleneck/valid_share" in row) == (head not in WITHOUT_SHARE)
    ranks = lmkit("rank", f"run={result.parent}", "contexts=200")
    (file,) = (result.parent / "analysis").glob("rank_*.json")
    weight = json.loads(file.read_text())["weight_spectrum"]
    if head in WITHOUT_SHARE:
        assert weight is None
        assert re.search(r"decoder's entropy rank +│ – ", ranks)
    else:
        assert weight["press_rank"] == 8  # of the words' vectors: none is 0
        assert (weight["num_contexts"], weight["num_columns"]) == (40, 8)
    lmkit("logits", f"run={result.parent}", "contexts=100")
    if head in WITHOUT_SHARE:
        table = lmkit("gradient_bottleneck", f"run={result.parent}", "contexts=60")
        assert re.search(r"share of the norm that passes +│ – ", table)
        content = json.loads((result.parent / "analysis/gradient_bottleneck.json").read_text())
        assert (content["share"], content["decoder_rank"], content["update_bound"]) == (None,) * 3
        assert 0 < content["update_rank"] <= 40
        assert content["update_contexts"] == 60
