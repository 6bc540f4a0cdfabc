"""The dialogue experiments compose, and their heads are compared at one size."""

import pytest
import torch

from lmkit.experiment.objects import make_model
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from tests.tiny import composed

MIXTURES = {"softmax": SingleContext, "moc": MixtureOfContexts, "mos": MixtureOfSoftmaxes}


def built(name: str):
    config = composed(f"experiment={name}")
    assert config["name"] == name
    with torch.device("meta"):
        return make_model(config, torch.zeros(config["data"]["num_words"]))


@pytest.mark.parametrize("size", ["dialogue", "dialogue_small"])
def test_the_three_heads_have_as_many_parameters(size):
    models = {head: built(f"{size}_{head}") for head in MIXTURES}
    for head, mixture in MIXTURES.items():
        assert type(models[head].head.mixture) is mixture
    counts = {head: sum(p.numel() for p in model.parameters()) for head, model in models.items()}
    assert counts["moc"] == counts["mos"]
    assert counts["softmax"] == pytest.approx(counts["mos"], rel=0.003)
