"""The rule by which heads on fixed trunks are compared, as docs/fixed_trunk.md states it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

SOFTMAX_TRUNK = "penn_subwords-b511f1da1004"
MOS_TRUNK = "penn_subwords_softmaxes-ce85e3b663c7"
SCRIPT = Path(__file__).parents[2] / "docs/heads_alone/heads.py"


@pytest.fixture(scope="module")
def heads() -> ModuleType:
    spec = importlib.util.spec_from_file_location("heads", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tried(heads):
    """A head's runs: rate, seed, valid perplexity of each."""

    def make(*runs: tuple[float, int, float]):
        command = "lmkit train optimizer.lr={} 'sweep.axes=[a,b]' runs_dir=runs"
        alone = [
            heads.Alone(Path(str(i)), "trunk", ("GSS", ""), rate, seed, ppl, command.format(rate))
            for i, (rate, seed, ppl) in enumerate(runs)
        ]
        return heads.Tried(alone)

    return make


def test_rates_are_added_while_the_best_is_an_edge(tried):
    assert tried((0.01, 141, 26.0), (0.03, 141, 25.0)).missing_rates == [0.1]
    assert tried((0.01, 141, 25.0), (0.03, 141, 26.0)).missing_rates == [0.003]
    inner = tried((0.01, 141, 26.0), (0.03, 141, 25.0), (0.1, 141, 25.5))
    assert inner.missing_rates == []
    assert tried((0.01, 141, 26.0), (0.03, 141, 25.0)).counted == []


def test_the_runs_at_the_chosen_rate_count_whatever_their_seeds_give(tried):
    runs = [(0.01, 141, 26.0), (0.03, 141, 25.0), (0.1, 141, 25.5)]
    seeds = [(0.03, 142, 99.0), (0.1, 143, 1.0)]
    counted = tried(*runs, *seeds).counted
    assert [(run.rate, run.seed) for run in counted] == [(0.03, 141), (0.03, 142)]


def test_the_next_commands_are_rates_then_seeds(tried):
    runs = [(0.01, 141, 26.0), (0.03, 141, 25.0)]
    assert tried(*runs).commands() == ["lmkit train runs_dir=runs optimizer.lr=0.1"]
    runs += [(0.1, 141, 25.5), (0.03, 143, 25.1)]
    assert tried(*runs).commands() == [
        f"lmkit train optimizer.lr=0.03 runs_dir=runs seed={seed}" for seed in (142, 144, 145)
    ]


@pytest.fixture(scope="module")
def kept(heads) -> dict[str, dict[str, float]]:
    """Valid perplexities at the best rates, by trunk and head."""
    found: dict[str, dict[str, float]] = {}
    for tried in heads.tried_in(heads.KEPT):
        found.setdefault(tried.best.trunk, {})[tried.best.head[0]] = tried.best.valid_ppl
    return found


def test_its_page_is_its_template_with_the_kept_runs(heads, kept):
    assert sorted(map(len, kept.values())) == [8, 8]
    assert heads.README.read_text("utf-8") == heads.text(heads.tried_in(heads.KEPT))


def test_what_its_page_says_can_be_seen_in_its_tables(kept):
    on_softmax, on_mos = kept[SOFTMAX_TRUNK], kept[MOS_TRUNK]
    for ppl in (on_softmax, on_mos):
        assert ppl["MoC"] == pytest.approx(ppl["MoS"], abs=0.1)
        assert max(ppl["MoC"], ppl["MoS"]) < ppl["Softmax"] - 0.5
        assert min(ppl, key=ppl.__getitem__) == "Mixtape"
    for head in ("SS", "GSS"):
        assert on_softmax[head] == pytest.approx(on_softmax["Softmax"], abs=0.1)
    with_latents = {"Mixtape", "MoC", "MoS", "MoS + GSS"}
    worst = max(on_mos[head] for head in with_latents)
    assert all(on_mos[head] > worst + 10 for head in on_mos.keys() - with_latents)


def test_what_has_an_interval_there_has_its_rate_and_several_seeds(heads):
    page = heads.TEMPLATE.read_text("utf-8")
    settled = {
        tried.best.head[0]
        for tried in heads.tried_in(heads.KEPT)
        if tried.best.trunk == SOFTMAX_TRUNK and len(tried.counted) >= 3
    }
    quoted = set(re.findall(r"\{softmax_minus\[(.*?)\]\}", page))
    assert quoted == {"MoC", "LMS-PLIF"}
    assert quoted | {"Softmax"} <= settled
    differences = heads.differences(SOFTMAX_TRUNK.replace("-", "_"))
    for head in quoted:
        assert all(word.strip("()").startswith("−") for word in differences[head].split(" … "))
