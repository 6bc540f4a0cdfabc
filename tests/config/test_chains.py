"""Chains of the authors' programs: trained, finetuned, with a cache, with dynamic evaluation."""

from __future__ import annotations

from functools import cache

import pytest

from lmkit.cli.entry import CONFIGS, compose, plain_config
from lmkit.experiment.make import make
from lmkit.results.published import published

CHAINS = sorted(path.stem for path in (CONFIGS / "finetuning").glob("*.yaml"))


@cache
def composed(name: str) -> dict:
    return plain_config(compose("train", [f"experiment={name}"]))


def finetuning(name: str) -> dict:
    config = plain_config(compose("finetune", ["run=r", f"finetuning={name}"]))
    return {option: config[option] for option in ("lr", "seed", "n", "max_epochs")}


def method(name: str) -> dict:
    config = plain_config(compose("analyses/evaluate", ["run=r", f"method={name}"]))
    return make(config["method"], "method").options()


@pytest.mark.parametrize(
    ("name", "seed", "epochs", "hidden_dropout", "input_dropout", "batch"),
    [("penn_awd_lstm", 141, 500, 0.25, 0.4, 20), ("wt2_awd_lstm", 1882, 750, 0.2, 0.65, 80)],
)
def test_awd_lstm_is_as_its_authors_code_trains_it(
    name, seed, epochs, hidden_dropout, input_dropout, batch
):
    config = composed(name)
    trunk = config["trunk"]
    assert config["optimizer"]["lr"] == 30.0
    assert (config["seed"], config["max_epochs"], config["patience"]) == (seed, epochs, None)
    assert (trunk["hidden_dropout"], trunk["input_dropout"]) == (hidden_dropout, input_dropout)
    assert config["windows"]["batch_size"] == batch
    assert config["trigger"] == {"_target_": "lmkit.training.triggers.NonMonotone", "n": 5}


def test_doc_on_wikitext_2_has_the_values_of_its_authors_code():
    config = composed("wt2_doc")
    trunk, mixture = config["trunk"], config["head"]["mixture"]
    assert [trunk[f"{part}_dim"] for part in ("emb", "hidden", "out")] == [300, 1150, 650]
    assert (trunk["input_dropout"], trunk["hidden_dropout"]) == (0.55, 0.2)
    assert (mixture["experts"], mixture["latent_dropout"]) == ([0, 0, 5, 15], 0.6)
    assert config["windows"]["batch_size"] == 15
    assert config["windows"]["max_length_delta"] == 20
    assert (config["optimizer"]["lr"], config["seed"]) == (15.0, 1882)
    assert (config["trigger"]["n"], config["max_epochs"]) == (60, 500)


def test_finetuning_without_a_name_changes_nothing():
    expected = {"lr": None, "seed": None, "n": 5, "max_epochs": 500}
    assert finetuning("as_trained") == expected


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("penn_mos", {"lr": 25}),
        ("wt2_mos", {"lr": 20}),
        ("penn_awd_lstm", {}),
        ("wt2_awd_lstm", {"max_epochs": 750}),
        ("penn_doc", {"n": 60}),
        ("wt2_doc", {"n": 60}),
    ],
)
def test_finetuning_has_the_values_of_the_authors_programs(name, changes):
    assert finetuning(name) == finetuning("as_trained") | changes
    assert name in CHAINS


def test_dynamic_evaluation_has_the_values_of_krauses_programs():
    first = method("dynamic_awd_lstm")
    assert (first["lr"], first["decay"], first["epsilon"]) == (0.002, 0.02, 0.001)
    assert (first["convention"], first["length"]) == ("code", 5)


def test_every_published_value_has_an_experiment_that_composes():
    for experiment in published()["experiment"].dropna().unique():
        name = experiment.partition(" ")[0].removesuffix("_finetune")
        assert composed(name)["name"] == name


@pytest.mark.parametrize("kind", ["cache", "dynamic"])
def test_every_published_evaluation_has_a_method_with_its_values(kind):
    table = published()
    rows = table[table["quantity"].str.startswith(f"{kind}.")]
    methods = [method(path.stem) for path in (CONFIGS / "method").glob("*.yaml")]
    known = [{name: str(value) for name, value in each.items()} for each in methods]
    for remark in rows["remark"].unique():
        values = dict(each.split(" ") for each in remark.split(", "))
        assert values in known, remark
