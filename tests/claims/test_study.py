"""The rule by which heads on fixed trunks are compared, as docs/fixed_trunk.md states it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import study
import torch
from keeping import filled

from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import read_spectrum

SOFTMAX_TRUNK = "penn_subwords-b511f1da1004"
MOS_TRUNK = "penn_subwords_softmaxes-ce85e3b663c7"
TRANSFORMER = "penn_subwords_transformer-4ee3176126df"
TRUNKS = (SOFTMAX_TRUNK, MOS_TRUNK, TRANSFORMER)


@pytest.fixture
def tried():
    """A head's runs: rate, seed, valid perplexity of each."""

    def make(*runs: tuple[float, int, float]):
        command = "lmkit train optimizer.lr={} 'sweep.axes=[a,b]' runs_dir=runs"
        alone = [
            study.Alone(Path(str(i)), "trunk", ("GSS", ""), rate, seed, ppl, command.format(rate))
            for i, (rate, seed, ppl) in enumerate(runs)
        ]
        return study.Tried(alone)

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


def test_rates_of_all_heads_come_before_seeds(tried):
    known = tried((0.01, 141, 26.0), (0.03, 141, 25.0), (0.1, 141, 25.5))
    edge = tried((0.01, 141, 26.0), (0.03, 141, 25.0))
    commands = study.asked_for([known, edge])
    assert commands == [*edge.commands(), *known.commands()]
    assert study.asked_for([]) == []


@pytest.mark.parametrize(
    ("named", "head"),
    [
        ("GSS (c=−1.5, lr 10)", "GSS (c=−1.5)"),
        ("MoS (lr 0.003)", "MoS"),
        ("MoS (K=5)", "MoS (K=5)"),
        ("MoS + GSS", "MoS + GSS"),
    ],
)
def test_a_head_is_named_without_its_rate(named, head):
    assert study.without_rate(named) == head


@pytest.fixture(scope="module")
def kept() -> dict[tuple[str, str], Any]:
    """Each head that counts, by its trunk and name."""
    every = study.tried_in(study.KEPT)
    return {
        (trunk, head): each
        for trunk in {each.best.trunk for each in every}
        for head, each in study.named([e for e in every if e.best.trunk == trunk]).items()
        if each.counted
    }


def test_its_texts_are_their_templates_with_the_kept_runs(kept):
    assert sorted(Counter(trunk for trunk, _ in kept if "-" in trunk).values()) == [10, 10, 10]
    known = study.numbers(study.tried_in(study.KEPT))
    assert study.README.read_text("utf-8") == filled(study.TEMPLATE, known)
    readme = study.PROJECT.read_text("utf-8")
    assert readme == study.with_first_screen(readme, known)


def test_a_partial_correlation_is_that_of_its_formula():
    x, y, z = np.random.default_rng(0).normal(size=(3, 8))
    (xy, xz), (_, yz) = np.corrcoef([x, y, z])[:2, 1:]
    plain = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))  # Fisher 1924
    half = 1.959964 / 2  # of 8 points, 3 and what is held cost a degree of freedom each
    low, high = np.tanh(np.arctanh(plain) - half), np.tanh(np.arctanh(plain) + half)
    told = f"{plain:.2f} ({low:.2f} … {high:.2f})".replace("-", "−")
    assert study.correlation(x, y, z) == told


def test_all_heads_have_their_rate_and_five_seeds(kept):
    counts = {at: len(each.counted) for at, each in kept.items() if at[0] in (*TRUNKS, study.WHOLE)}
    assert len(counts) == 3 * 10 + 8
    assert set(counts.values()) == {5}
    assert {head for _, head in counts} == set(study.IN_ORDER)


def test_the_first_epoch_averaged_is_that_of_the_log():
    runs = [run for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE
            for run in each.runs]  # fmt: skip
    for run in runs:
        log = (run.path / "train.log").read_text("utf-8")
        told = re.findall(r"averaging starts with epoch (\d+)", log)
        epochs = RunFolder(run.path).read_result().budget.epochs
        assert study.averaged_from(run) == (int(told[-1]) if told else epochs + 1), run.path


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_pretrained_trunk_is_one_that_lmkit_reads(family, tmp_path, monkeypatch, lmkit):
    pytest.importorskip("transformers")
    import pretrained_trunks

    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("the cat sat on the mat , and slept\n" * 150)
    monkeypatch.setattr(pretrained_trunks, "VOCABULARY", 270)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(sys, "argv", ["", family, str(tmp_path), str(tmp_path / family)])
    pretrained_trunks.main()
    monkeypatch.chdir(tmp_path)
    lmkit("rank", f"hf={family}", "text=valid.txt", "contexts=90")
    (spectrum,) = Path("pretrained", family, "spectra").glob("valid*.npz")
    assert read_spectrum(spectrum).measures["num_contexts"] == 90
