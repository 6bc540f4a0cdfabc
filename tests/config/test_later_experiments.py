"""Experiments beside Parthiban's, and chains of finetuning and evaluation, are what their sources
say, as far as these say it.
"""

from typing import Any

import pytest

from lmkit.cli.entry import CONFIGS, compose, plain_config
from lmkit.evaluation.method import Method
from lmkit.experiment.make import make
from lmkit.experiment.model_size import model_without_weights
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.results.published import CORPORA, published
from lmkit.runs.names import head_name, name_of
from lmkit.training.head_module import HeadModule
from tests.tiny import composed

# of the authors' programs: experiment, then option and value
PROGRAMS: dict[str, dict[str, Any]] = {
    "penn_awd_lstm": {
        "optimizer.lr": 30.0, "seed": 141, "max_epochs": 500, "patience": None, "trigger.n": 5,
        "windows.batch_size": 20, "trunk.hidden_dropout": 0.25, "trunk.input_dropout": 0.4,
    },
    "wt2_awd_lstm": {
        "optimizer.lr": 30.0, "seed": 1882, "max_epochs": 750, "patience": None, "trigger.n": 5,
        "windows.batch_size": 80, "trunk.hidden_dropout": 0.2, "trunk.input_dropout": 0.65,
    },
    "penn_doc": {
        "head.mixture.experts": [0, 0, 5, 15], "head.mixture.latent_dropout": 0.6,
        "head.mixture.balance_weight": 0.001, "trigger.n": 60, "max_epochs": 500, "seed": 28,
        "patience": None,
    },
    "wt2_doc": {
        "head.mixture.experts": [0, 0, 5, 15], "head.mixture.latent_dropout": 0.6,
        "trunk.emb_dim": 300, "trunk.hidden_dim": 1150, "trunk.out_dim": 650,
        "trunk.input_dropout": 0.55, "trunk.hidden_dropout": 0.2, "windows.batch_size": 15,
        "windows.max_length_delta": 20, "optimizer.lr": 15.0, "seed": 1882, "trigger.n": 60,
        "max_epochs": 500, "patience": None,
    },
    "penn_mixtape": {"head.num_experts": 4},
}  # fmt: skip
SAME_AS_MOS = {
    "penn_doc": ("trunk",),
    "penn_mixtape": ("trunk", "optimizer", "schedule", "trainer", "windows", "seed"),
}
# what finetuning changes in that of runs as they were trained
FINETUNING = {
    "as_trained": {"lr": None, "seed": None, "n": 5, "max_epochs": 500},
    "penn_mos": {"lr": 25, "max_epochs": 1000},
    "wt2_mos": {"lr": 20, "max_epochs": 1000},
    "penn_awd_lstm": {},
    "wt2_awd_lstm": {"max_epochs": 750},
    "penn_doc": {"n": 60},
    "wt2_doc": {"n": 60},
}


def built(experiment: str, words: int = 10_000) -> HeadModule:
    return model_without_weights(composed(f"experiment={experiment}"), words)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_experiment_has_the_values_of_its_authors_program(name):
    config, found = composed(f"experiment={name}"), {}
    assert config["name"] == name
    for option in PROGRAMS[name]:
        found[option] = config
        for key in option.split("."):
            found[option] = found[option][key]
    assert found == PROGRAMS[name]
    for section in SAME_AS_MOS.get(name, ()):
        assert config[section] == composed("experiment=penn_mos")[section]
    corpus = CORPORA[name.partition("_")[0]]
    assert config["conclusion"]["published_contexts"] == corpus.rank_contexts


@pytest.mark.parametrize("name", FINETUNING)
def test_finetuning_has_the_values_of_the_authors_programs(name):
    config = plain_config(compose("finetune", ["run=r", f"finetuning={name}"]))
    expected = FINETUNING["as_trained"] | FINETUNING[name]
    assert {option: config[option] for option in expected} == expected


def test_every_published_value_has_an_experiment():
    values = published()["experiment"].dropna().unique()
    names = {value.partition(" ")[0].removesuffix("_finetune") for value in values}
    assert names <= {path.stem for path in (CONFIGS / "experiment").glob("*.yaml")}


@pytest.mark.parametrize("kind", ["cache", "dynamic"])
def test_every_published_evaluation_has_a_method_with_its_values(kind):
    table = published()
    rows = table[table["quantity"].str.startswith(f"evaluate_{kind}_")]
    assert len(rows) >= 6
    known = []
    for path in (CONFIGS / "method").glob("*.yaml"):
        config = plain_config(compose("analyses/evaluate", ["run=r", f"method={path.stem}"]))
        options = make(config["method"], "method", Method).options()
        known.append({name: str(value) for name, value in options.items()})
    for remark in rows["remark"].unique():
        values = dict(each.split(" ") for each in remark.split(", "))
        assert values in known, remark


@pytest.mark.parametrize(
    ("lstm", "transformer", "words", "tolerance"),
    [
        ("penn_softmax", "penn_transformer", 10_000, 0.01),
        ("wt2_softmax", "wt2_transformer", 33_278, 0.01),
        ("penn_small", "penn_small_transformer", 10_000, 0.05),
    ],
)
def test_a_transformer_has_the_size_of_the_lstm(lstm, transformer, words, tolerance):
    models = [built(name, words) for name in (lstm, transformer)]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert sizes[1] == pytest.approx(sizes[0], rel=tolerance)
    shapes = {tuple(model.head.decoder_weight.shape) for model in models}
    assert len(shapes) == 1


@pytest.mark.parametrize("size", ["dialogue", "dialogue_small"])
def test_the_three_heads_of_dialogues_have_as_many_parameters(size):
    mixtures = {"softmax": SingleContext, "moc": MixtureOfContexts, "mos": MixtureOfSoftmaxes}
    counts = {}
    for head, mixture in mixtures.items():
        name = f"{size}_{head}"
        assert composed(f"experiment={name}")["name"] == name
        model = built(name, composed(f"experiment={name}")["data"]["num_words"])
        assert type(model.head.mixture) is mixture
        counts[head] = sum(parameter.numel() for parameter in model.parameters())
    assert counts["moc"] == counts["mos"]
    assert counts["softmax"] == pytest.approx(counts["mos"], rel=0.003)


def test_mixtape_and_doc_are_made_as_published():
    head = built("penn_mixtape").head
    assert type(head) is Mixtape
    names = [name_of(kind) for kind in (head, head.mixture, head.transform)]
    assert head_name(names) == head.display_name
    assert built("penn_doc").head.mixture.in_dim == 960 + 620
    # without components of the embedding, a decoder of its own may have any width
    own = composed("experiment=penn_doc", "head.tie_weights=false", "head.mixture.emb_dim=7")
    assert model_without_weights(own, 10_000).head.mixture.emb_dim == 7
