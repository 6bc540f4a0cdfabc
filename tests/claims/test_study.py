"""The rule by which heads on fixed trunks are compared, as docs/fixed_trunk.md states it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import study
import torch
from keeping import filled, rows_of

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


def test_a_table_has_means_and_spreads_by_valid_perplexity_and_says_on_what_it_was_trained():
    assert study.spread([21.0, 23.0]) == "22.00 ± 1.41"
    assert study.spread([21.0]) == "21.00"
    whole = [each for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE]
    rows = [row.split(" | ") for row in study.table(study.named(whole)).splitlines()[2:]]
    assert len(rows) == len(whole)
    means = [float(row[4].split(" ± ")[0]) for row in rows]
    assert means == sorted(means)
    counts = re.findall(r"(\d+) (?:runs )?on an ", study.cpus(whole))
    assert sum(map(int, counts)) == sum(len(each.runs) for each in whole)


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


@pytest.fixture(scope="module")
def intervals() -> Callable[[str, str], tuple[float, float]]:
    """The ends of a difference between two heads on a trunk."""

    def ends(trunk: str, pair: str) -> tuple[float, float]:
        pairs = study.FOLDER / f"tables/{study.table_prefix(trunk)}_pairs.csv"
        text = study.differences(pairs)[pair]
        low, high = re.fullmatch(r".* \((.*) … (.*)\)", text).groups()  # type: ignore[union-attr]
        return float(low.replace("−", "-")), float(high.replace("−", "-"))

    return ends


def test_its_texts_are_their_templates_with_the_kept_runs(kept):
    assert sorted(Counter(trunk for trunk, _ in kept if "-" in trunk).values()) == [10, 10, 10]
    known = study.numbers(study.tried_in(study.KEPT))
    assert study.README.read_text("utf-8") == filled(study.TEMPLATE, known)
    readme = study.PROJECT.read_text("utf-8")
    assert readme == study.with_first_screen(readme, known)


def ppl_at(tried: study.Tried, rate: float) -> float:
    """Test perplexity of the first seed at a rate."""
    (run,) = (run for run in tried.runs if (run.rate, run.seed) == (rate, study.FIRST))
    return RunFolder(run.path).read_result().metrics["test_ppl"]


def test_a_higher_rank_from_a_transform_brings_next_to_nothing(kept, intervals):
    for head in ("SS", "GSS (c=−1.5)"):
        low, high = intervals(SOFTMAX_TRUNK, f"{head} − Softmax")
        assert -0.1 < low < 0 < high < 0.1
        assert study.press_rank(kept[SOFTMAX_TRUNK, head]) == pytest.approx(800, rel=0.01)
        low, high = intervals(TRANSFORMER, f"{head} − Softmax")
        assert -0.1 < low < high < 0
        low, high = intervals(MOS_TRUNK, f"{head} − Softmax")
        assert 0 < low < high < 0.1
        ours, softmax = (kept[TRANSFORMER, name] for name in (head, "Softmax"))
        assert mean(r.valid_ppl for r in ours.counted) > mean(r.valid_ppl for r in softmax.counted)
        for rate in (0.01, 0.03):
            assert ppl_at(ours, rate) > ppl_at(softmax, rate)
    assert study.press_rank(kept[SOFTMAX_TRUNK, "Softmax"]) == 34


def test_nor_does_the_rank_of_a_mixture(kept, intervals):
    for trunk in (SOFTMAX_TRUNK, MOS_TRUNK):
        low, high = intervals(trunk, "MoS (K=5) − MoC")
        assert low < 0 < high
        assert study.press_rank(kept[trunk, "MoC"]) == 34
        assert study.press_rank(kept[trunk, "MoS (K=5)"]) > 780
    assert intervals(TRANSFORMER, "MoS (K=5) − MoC")[0] > 0
    cost = [kept[SOFTMAX_TRUNK, head].best.path for head in ("MoC", "MoS (K=5)")]
    first, second = (RunFolder(path).read_result().cost["parameters"] for path in cost)
    assert first == second


def test_mixing_latents_helps_on_lstms_and_the_layer_hurts_on_a_transformer(kept, intervals):
    low, high = intervals(SOFTMAX_TRUNK, "MoS (K=1) − Softmax")
    assert 0 < low < high < 0.2
    assert intervals(MOS_TRUNK, "MoS (K=1) − Softmax")[1] < 0
    for trunk in (SOFTMAX_TRUNK, MOS_TRUNK):
        assert intervals(trunk, "MoC − MoS (K=1)")[1] < 0
        assert intervals(trunk, "MoC − Softmax")[1] < 0
    assert intervals(TRANSFORMER, "MoS (K=1) − Softmax")[0] > 0
    assert intervals(TRANSFORMER, "MoC − MoS (K=1)")[0] > 0
    for head in ("MoC", "MoS (K=5)", "MoS + GSS", "Mixtape"):
        assert intervals(TRANSFORMER, f"{head} − Softmax")[0] > 0
    assert {study.press_rank(kept[trunk, "MoC"]) for trunk in TRUNKS} == {34}
    assert {study.press_rank(kept[trunk, "MoS (K=1)"]) for trunk in TRUNKS} == {34}


def epochs_of(tried: study.Tried) -> tuple[int, int]:
    """The fewest and the most that the runs that count were trained for."""
    counts = [RunFolder(run.path).read_result().budget.epochs for run in tried.counted]
    return min(counts), max(counts)


def test_gss_with_c_above_0_gains_trained_whole_and_not_on_given_contexts(kept, intervals):
    for trunk in (SOFTMAX_TRUNK, MOS_TRUNK):
        assert intervals(trunk, "GSS (c=1.5) − Softmax")[0] > 0
    for other in ("Softmax", "GSS (c=−1.5)"):
        assert intervals(study.WHOLE, f"GSS (c=1.5) − {other}")[1] < 0
    low, high = intervals(study.WHOLE, "GSS (c=−1.5) − Softmax")
    assert low < 0 < high
    alike = ("Softmax", "GSS (c=1.5)", "GSS (c=−1.5)")
    of_whole = {head: kept[study.WHOLE, head] for head in alike}
    low, high = (study.press_rank(of_whole[f"GSS (c={c})"]) for c in ("1.5", "−1.5"))
    assert low < high < 1.05 * low
    slopes = [round(study.slope_of(of_whole[f"GSS (c={c})"]), 1) for c in ("1.5", "−1.5")]
    assert slopes == [2.4, 1.5]
    assert all(len(each.counted) >= 3 for each in of_whole.values())
    sizes = {RunFolder(e.best.path).read_result().cost["parameters"] for e in of_whole.values()}
    assert len(sizes) == 1
    page = " ".join(study.README.read_text("utf-8").split())
    ours, theirs = (epochs_of(of_whole[head]) for head in ("GSS (c=1.5)", "Softmax"))
    told = "{} to {} against {} to {}".format(*ours, *theirs)
    assert f"for more epochs, {told}, at a lower rate" in page
    softmax = of_whole["Softmax"]
    (slower,) = (run for run in softmax.runs if run.rate == of_whole["GSS (c=1.5)"].best.rate)
    assert slower.valid_ppl > softmax.best.valid_ppl
    at_ten = (ppl_at(of_whole[head], 10) for head in ("GSS (c=1.5)", "Softmax"))
    assert "it is ahead too, {:.2f} against {:.2f}".format(*at_ten) in page
    gss = {run.rate: run for run in of_whole["GSS (c=1.5)"].runs if run.seed == study.FIRST}
    ppl = {rate: RunFolder(gss[rate].path).read_result().metrics["test_ppl"] for rate in (2.5, 5)}
    assert f"has {ppl[2.5]:.2f} there, less than its {ppl[5]:.2f} at 5" in page
    assert ppl[2.5] < ppl[5]
    assert gss[2.5].valid_ppl > gss[5].valid_ppl


def test_trained_whole_mos_is_the_lowest_and_below_moc(kept, intervals):
    ppl = {
        head: mean(RunFolder(run.path).read_result().metrics["test_ppl"] for run in each.counted)
        for (at, head), each in kept.items()
        if at == study.WHOLE
    }
    assert len(ppl) == 8
    assert min(ppl, key=ppl.__getitem__) == "MoS (K=5)"
    told = "{} to {} epochs against {} to {}".format(
        *(end for head in ("MoC", "MoS (K=5)") for end in epochs_of(kept[study.WHOLE, head]))
    )
    assert told in " ".join(study.README.read_text("utf-8").split())
    assert max(ppl, key=ppl.__getitem__) == "MoS (K=1)"
    assert intervals(study.WHOLE, "MoS (K=5) − Softmax")[1] < 0
    assert intervals(study.WHOLE, "MoS (K=1) − Softmax")[0] > 0
    assert ppl["MoS (K=5)"] < ppl["MoC"] < ppl["Softmax"]
    page = " ".join(study.README.read_text("utf-8").split())
    at_ten = ppl_at(kept[study.WHOLE, "MoC"], 10)
    assert f"at 10, seed 141 has {at_ten:.2f}, less than MoC's mean at 5" in page
    assert at_ten < ppl["MoC"]
    for pair in ("MoS (K=5) − MoC", "MoC − MoS (K=1)"):
        assert intervals(study.WHOLE, pair)[1] < 0
    for head in ("SS", "GSS (c=−1.5)"):
        low, high = intervals(study.WHOLE, f"{head} − Softmax")
        assert -0.3 < low < 0 < high < 0.3
    for pair in ("MoC − Softmax", "LMS-PLIF − Softmax", "MoS (K=5) − GSS (c=1.5)"):
        low, high = intervals(study.WHOLE, pair)
        assert low < 0 < high


def test_of_the_heads_with_latents_the_best_on_lstms_has_a_middling_rank(kept, intervals):
    for trunk in (SOFTMAX_TRUNK, MOS_TRUNK):
        on_it = {head: each for (at, head), each in kept.items() if at == trunk}
        best = min(on_it, key=lambda head: mean(run.valid_ppl for run in on_it[head].counted))
        assert best == "Mixtape"
        assert round(study.press_rank(on_it[best])) == 134
        assert intervals(trunk, "Mixtape − MoS (K=5)")[1] < 0
        latent = {
            head: RunFolder(each.best.path).read_result().cost["parameters"]
            for head, each in on_it.items()
            if head.split(" (")[0] in study.WITH_LATENTS
        }
        assert len(latent) == 5
        assert max(latent, key=latent.__getitem__) == "Mixtape"


def test_plif_gains_at_the_highest_rank_with_more_parameters(kept, intervals):
    for trunk in TRUNKS:
        assert intervals(trunk, "LMS-PLIF − Softmax")[1] < 0
        ranks = {at[1]: study.press_rank(kept[at]) for at in kept if at[0] == trunk}
        assert max(ranks, key=ranks.__getitem__) == "LMS-PLIF"
        plif, softmax = (
            RunFolder(kept[trunk, head].best.path).read_result().cost["parameters"]
            for head in ("LMS-PLIF", "Softmax")
        )
        assert round(plif / softmax) == 4
        on_it = (each.best.path for (at, _), each in kept.items() if at == trunk)
        assert plif == max(RunFolder(path).read_result().cost["parameters"] for path in on_it)


@pytest.mark.parametrize(
    ("table", "plif_gains_from"), [(SOFTMAX_TRUNK.replace("-", "_"), 2), ("gpt2_penn", 4)]
)
def test_perplexity_follows_the_rank_of_the_decoder_and_not_that_of_log_p(table, plif_gains_from):
    rows = rows_of(study.FOLDER / "tables" / f"{table}_decoder_ranks.csv")

    def ppl(head: str, rank: int) -> float:
        return rows[f"{head} / {rank}"]["test perplexity mean"]

    for rank in (2, 4, 8, 16, 32):
        assert ppl("GSS", rank) == pytest.approx(ppl("Softmax", rank), rel=0.01)
        gss, softmax = (rows[f"{head} / {rank}"][study.PRESS] for head in ("GSS", "Softmax"))
        assert gss >= 17 * softmax
        assert softmax == rank + 2
        assert (ppl("LMS-PLIF", rank) < ppl("Softmax", rank)) == (rank >= plif_gains_from)
        assert ppl("MoS", rank) < ppl("LMS-PLIF", rank)
    assert ppl("Softmax", 4) > 2 * ppl("Softmax", 16)


@pytest.mark.parametrize(
    "figure", sorted(study.FOLDER.glob("figures/*_rank_heads.svg")), ids=lambda path: path.stem
)
def test_a_figure_of_heads_shows_those_of_its_table(figure):
    table = study.FOLDER / "tables" / f"{figure.stem.removesuffix('_rank_heads')}_performance.csv"
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", figure.read_text("utf-8"))
    drawn, heads = ({each.split(" (")[0] for each in of} for of in (labels, rows_of(table)))
    names = {name for name in drawn if not re.search(r"[\d.]{2}|rank|perplexity", name)}
    assert names == heads


@pytest.mark.parametrize(("trunk", "count"), [(SOFTMAX_TRUNK, 5), (study.WHOLE, 5)])
def test_what_pairs_of_heads_differ_in_is_as_its_tables_say(kept, trunk, count):
    alone, _, whole = study.README.read_text("utf-8").partition("## Trained whole")
    told = re.findall(
        r"^\| (.+) − (.+) \| .*rank (\d+) → (\d+)(?:, slope 1 → ([\d.]+))?",
        whole if trunk == study.WHOLE else alone,
        re.M,
    )
    assert len(told) == count
    for first, second, low, high, slope in told:
        for head, rank in ((second, low), (first, high)):
            assert round(study.press_rank(kept[trunk, head])) == int(rank)
        if slope:
            assert round(study.slope_of(kept[trunk, first]), 1) == float(slope)
            assert study.slope_of(kept[trunk, second]) == pytest.approx(1)


# whether r with test perplexity is below or above zero: alone, and with the other held
SIDES = {
    SOFTMAX_TRUNK: {"several latents": [-1, 0], "latent layer": [0, 0]},
    MOS_TRUNK: {"several latents": [-1, -1], "latent layer": [-1, -1]},
    TRANSFORMER: {"several latents": [1, 0], "latent layer": [1, 0]},
    study.WHOLE: {"several latents": [0, -1]},
}


@pytest.mark.parametrize("trunk", SIDES)
def test_only_latents_go_with_perplexity(trunk):
    on_it = [each for each in study.tried_in(study.KEPT) if each.best.trunk == trunk]
    tables, prefix = study.FOLDER / "tables", study.table_prefix(trunk)
    rows = study.factors(tables, prefix, study.named(on_it)).splitlines()[2:]
    assert len(rows) == 10 + (trunk == study.WHOLE)
    for row in rows:
        ends = re.findall(r"\((\S+) … (\S+)\)", row.replace("−", "-"))
        assert len(ends) == 2
        name = re.split(r", | \(| \|", row.removeprefix("| "))[0]
        sides = [(float(low) > 0) - (float(high) < 0) for low, high in ends]
        assert sides == SIDES[trunk].get(name, [0, 0]), row


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


def test_the_rate_decides_whole_models_as_its_page_says():
    whole = [each for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE]
    (mos,) = (each for each in whole if "'num_experts': 5" in each.best.head[1]
              and "MixtureOfSoftmaxes" in each.best.head[1])  # fmt: skip
    ppl = {run.rate: RunFolder(run.path).read_result().metrics["test_ppl"] for run in mos.runs}
    page = " ".join(study.README.read_text("utf-8").split())
    assert f"has {ppl[20]:.2f} at 20 and {ppl[10]:.2f} at 10" in page


def test_which_whole_models_ended_at_the_limit():
    whole = [each for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE]
    budgets = {
        (head, run.rate, run.seed): RunFolder(run.path).read_result().budget
        for head, each in study.named(whole).items()
        for run in each.runs
    }
    at_limit = {at for at, budget in budgets.items() if budget.stopped != "patience"}
    assert {budget.epochs for at, budget in budgets.items() if at in at_limit} == {60}
    lowest = {at for at in budgets if at[1] == 2.5}
    assert len(lowest) == 5
    assert at_limit - lowest == {("GSS (c=1.5)", 5, 141)}
    assert {head for head, *_ in at_limit & lowest} == {"MoC", "MoS (K=5)", "MoS (K=1)", "LMS-PLIF"}
    never = {
        head
        for head, each in study.named(whole).items()
        for run in each.runs
        if study.averaged_from(run) > budgets[head, run.rate, run.seed].epochs
    }
    assert never == {"MoC", "MoS (K=5)"}


def test_the_first_epoch_averaged_is_that_of_the_log():
    runs = [run for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE
            for run in each.runs]  # fmt: skip
    for run in runs:
        log = (run.path / "train.log").read_text("utf-8")
        told = re.findall(r"averaging starts with epoch (\d+)", log)
        epochs = RunFolder(run.path).read_result().budget.epochs
        assert study.averaged_from(run) == (int(told[-1]) if told else epochs + 1), run.path


def test_within_a_head_an_average_begun_later_goes_with_a_lower_perplexity():
    """By the formula: heads' means are taken off, and each costs a degree of freedom."""
    whole = [each for each in study.tried_in(study.KEPT) if each.best.trunk == study.WHOLE]
    starts, ppls, heads = [], [], 0
    for tried in whole:
        if len(tried.at_best) < 2:
            continue
        heads += 1
        for values, value in (
            (starts, study.averaged_from),
            (ppls, lambda run: RunFolder(run.path).read_result().metrics["test_ppl"]),
        ):
            of_head = np.array([float(value(run)) for run in tried.at_best])
            values.extend(of_head - of_head.mean())
    r = np.corrcoef(starts, ppls)[0, 1]
    half = 1.959964 / np.sqrt(len(starts) - (heads - 1) - 3)
    low, high = np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half)
    told = f"{r:.2f} ({low:.2f} … {high:.2f}), over {len(starts)} runs of {heads} heads"
    assert study.averaging_within(study.named(whole)) == told.replace("-", "−")
    assert high < 0
    without = {
        head: SimpleNamespace(
            at_best=[run for run in tried.at_best if (head, run.seed) != ("MoC", study.FIRST)]
        )
        for head, tried in study.named(whole).items()
    }
    assert not re.search(r"… −", study.averaging_within(without))


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
