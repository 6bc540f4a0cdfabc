"""The methods of `lmkit evaluate`: every file makes one, with the published values."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import yaml

from lmkit.cli.entry import CONFIGS, compose, plain_config
from lmkit.evaluation.dynamic import GradientStatistics, Rates, trainable
from lmkit.evaluation.method import Method
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_model

METHODS = sorted(path.stem for path in (CONFIGS / "method").glob("*.yaml"))


def method(name: str) -> Method:
    config = plain_config(compose("analyses/evaluate", ["run=r", f"method={name}"]))
    return make(config["method"], "method")


@pytest.fixture(scope="module")
def published(data_root: Path) -> dict:
    path = data_root.parent / "reference" / "published_results.yaml"
    if not path.is_file():
        pytest.skip(f"no published results at {path}")
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_and_a_point_of_its_grid_too(name):
    made = method(name)
    assert made.kind == name.partition("_")[0]
    if made.grid:
        point = {option: values[0] for option, values in made.grid.items()}
        assert made.at(point).options() == made.options() | point
        assert made.at(point).grid == made.grid


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "corpus"), [("cache", "penn"), ("cache_wt2", "wikitext-2")])
def test_the_cache_is_as_published(name, corpus, published):
    expected = dict(published["merity2018_code"]["cache"][corpus])
    expected["weight"] = expected.pop("lambda")
    assert method(name).options() == expected


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "corpus"), [("dynamic_mos", "penn"), ("dynamic_mos_wt2", "wikitext-2")]
)
def test_dynamic_evaluation_of_mos_is_as_published(name, corpus, published):
    table = published["yang2018"]["table8_dynamic_eval"]
    options = method(name).options()
    assert options.pop("convention") == "code"
    assert options.pop("length") == table["bptt"]
    expected = dict(table[corpus])
    expected["decay"] = expected.pop("lambda")
    assert options == expected


def test_table_8_in_the_convention_of_the_formula():
    """PTB in 100 columns is 1859 windows of 5; MoS has 17 tensors."""
    with torch.device("meta"):
        config = plain_config(compose("train", ["experiment=penn_mos"]))
        names = trainable(make_model(config, torch.zeros(10_000)))
    statistics = GradientStatistics(dict.fromkeys(names), math.ceil((929_589 // 100 - 1) / 5))
    assert (statistics.num_batches, len(names)) == (1859, 17)
    rates = Rates(0.002, 0.075, 0.001).from_code(statistics)
    expected = (0.002 / math.sqrt(1859), 0.075 / 17, 0.001 / math.sqrt(1859))
    assert rates == pytest.approx(expected)
