"""Experiments with later trunks and heads are what their sources say, as far as these say it."""

from __future__ import annotations

import pytest
import torch

from lmkit.cli.entry import compose, plain_config
from lmkit.experiment.objects import make_model
from lmkit.heads.mixtape import Mixtape
from lmkit.runs.names import head_name, name_of
from lmkit.training.language_model import LanguageModel


def composed(*overrides: str) -> dict:
    return plain_config(compose("train", overrides))


def built(*overrides: str) -> LanguageModel:
    with torch.device("meta"):
        return make_model(composed(*overrides), torch.zeros(10_000))


@pytest.mark.parametrize(("corpus", "words"), [("penn", 10_000), ("wt2", 33_278)])
def test_the_transformer_has_the_dimensions_and_parameters_of_awd_lstm(corpus, words):
    sizes = []
    for kind in ("softmax", "transformer"):
        with torch.device("meta"):
            model = make_model(composed(f"experiment={corpus}_{kind}"), torch.zeros(words))
        assert model.head.decoder_weight.shape == (words, 400)
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert 0.99 < sizes[1] / sizes[0] < 1.01


def test_the_small_transformer_is_of_the_size_of_the_small_lstm():
    lstm, transformer = (built(f"experiment=penn_small{kind}") for kind in ("", "_transformer"))
    sizes = [sum(p.numel() for p in model.parameters()) for model in (lstm, transformer)]
    assert 0.95 < sizes[1] / sizes[0] < 1.05


def test_mixtape_has_the_papers_sizes_and_the_trunk_of_mos():
    config, mos = composed("experiment=penn_mixtape"), composed("experiment=penn_mos")
    assert config["head"]["num_experts"] == 4
    assert config["head"]["latent_dropout"] == mos["head"]["mixture"]["latent_dropout"]
    for section in ("trunk", "optimizer", "schedule", "trainer", "windows", "seed"):
        assert config[section] == mos[section]
    made = built("experiment=penn_mixtape").head
    assert type(made) is Mixtape
    names = [name_of(kind) for kind in (made, made.mixture, made.transform)]
    assert head_name(names) == made.display_name


def test_mixtape_gives_gates_to_the_most_frequent_words_of_the_text():
    counts_V = torch.arange(40).roll(7)
    head = make_model(composed("head=mixtape"), counts_V).head
    assert head.own_words_R.tolist() == [6, 5, 4, 3]


def test_doc_is_as_the_authors_code_trains_it():
    config, mos = composed("experiment=penn_doc"), composed("experiment=penn_mos")
    mixture = config["head"]["mixture"]
    assert mixture["experts"] == [0, 0, 5, 15]
    assert (mixture["latent_dropout"], mixture["balance_weight"]) == (0.6, 0.001)
    assert (config["trigger"]["n"], config["max_epochs"], config["seed"]) == (60, 500, 28)
    assert config["trunk"] == mos["trunk"]
    assert built("experiment=penn_doc").head.mixture.in_dim == 960 + 620
