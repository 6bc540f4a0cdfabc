"""Studies at a size of seconds, by their command, against what the sources prove."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from lmkit.studies.degenerate import Degenerate, Experts, _shares, singular_values
from lmkit.studies.mode_matching import ModeMatching, against_softmax, dirichlet_log_probs, score

TINY = {
    "gss_pieces": ("points=21",),
    "degenerate": ("width=16", "experts=[2,4]", "inputs=3", "draws=2", "image_side=3"),
    "mode_matching": (
        *("heads=[Softmax,MoS + GSS]", "alphas=[0.1]", "seeds=2", "num_contexts=20"),
        *("num_words=12", "dims=[2,4]", "more_words=[8]", "words_dim=2", "steps=120"),
        *("num_experts=2", "knots=20", "units=2"),
    ),
}


@pytest.fixture
def rows(lmkit, monkeypatch, tmp_path):
    """Runs a study and reads its rows."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *options: str) -> pd.DataFrame:
        shown = lmkit("study", name, "threads=1", *options)
        assert "written: runs/synthetic" in shown.replace("\n", "")
        folder = tmp_path / "runs/synthetic" / name
        assert (folder / "figure.svg").read_text().startswith("<?xml")
        return pd.read_csv(folder / "rows.csv")

    return run


def test_gss_is_farthest_from_its_pieces_at_the_knee(rows):
    """By |k - 1| ln 2 (Parthiban et al. 2021, equations 2 and 3), with more slopes than colours."""
    slopes = [1 + i / 10 for i in range(12)]
    found = rows("gss_pieces", "c=[0.0]", f"k={slopes}".replace(" ", ""), *TINY["gss_pieces"])
    gaps = (found["smooth"] - found["pieces"]).abs().groupby(found["k"]).max()
    assert gaps.to_dict() == pytest.approx({k: (k - 1) * math.log(2) for k in slopes})


def test_half_of_a_relu_layer_is_off_and_experts_mend_it(rows):
    options = ("width=32", "experts=[8]", "inputs=20", "image_side=4", "channels=2")
    found = rows("degenerate", *options)
    ends = found.groupby(["layer", "gates"])["value"].min()
    assert (
        ends["dense", "none"] < 1e-9 < 1e-4 < min(ends["dense", g] for g in ("softmax", "constant"))
    )
    pd.testing.assert_frame_equal(found, rows("degenerate", *options))


def test_a_plain_layers_jacobian_has_a_zero_for_each_unit_that_is_off():
    torch.manual_seed(0)
    layer = Experts(12, 12, 1, kernel=1, gates="constant")
    inputs = torch.randn(5, 12, 1, 1)
    zeros = (singular_values(layer, inputs) < 1e-12).sum(1)
    assert zeros.tolist() == (layer(inputs.double()) == 0).flatten(1).sum(1).tolist()


@pytest.mark.parametrize("gates", ["softmax", "constant"])
def test_convolutions_are_dense_experts_at_every_position(gates):
    """With a kernel of one pixel."""
    torch.manual_seed(0)
    conv, images = Experts(3, 5, 4, kernel=1, gates=gates), torch.randn(2, 3, 4, 4)
    found = conv(images)
    for image, row, column in itertools.product(range(2), range(4), range(4)):
        x = images[image, :, row, column]
        expected = (conv.weight.flatten(2) @ x).relu()
        scores = torch.zeros(4) if conv.gate_weight_KC is None else conv.gate_weight_KC @ x
        expected = scores.softmax(0) @ expected
        torch.testing.assert_close(found[image, :, row, column], expected)


def test_softmax_stays_in_its_rank_and_the_mixture_fits_better(rows):
    found = rows("mode_matching", *TINY["mode_matching"])
    assert len(found) == 2 * 3 * 2
    ranks = (found["rank"] - found["dim"]).groupby(found["head"]).max()
    assert ranks["Softmax"] <= 2 < ranks["MoS + GSS"]
    assert (found["kl"] >= 0).all()
    means = found[found["dim"] == 2].groupby("head")["kl"].mean()
    assert means["MoS + GSS"] < means["Softmax"]


def test_a_figure_is_of_means_over_seeds_and_another_seed_draws_others():
    sizes = {"num_contexts": 6, "num_words": 5, "more_words": [], "words_dim": 2, "num_experts": 2}
    made = {"heads": ["Softmax", "SS"], "alphas": [0.1], "dims": [2], "knots": 20, "units": 2}
    study = ModeMatching(**sizes, **made, seeds=2, steps=3, lr=0.1)
    one, two = study.run(1), study.run(2)
    assert one.rows["entropy"].tolist() != two.rows["entropy"].tolist()
    mean = one.rows.query("head == 'Softmax'")["kl"].mean()
    assert one.figure.axes[1].lines[0].get_ydata() == pytest.approx([mean])


def test_degenerate_layers_are_counted_by_the_root_of_the_mean_square_and_drawn_by_a_seed():
    of = {"layer": "d", "gates": "none", "experts": 1, "jacobian": 0}
    assert _shares(pd.DataFrame(of | {"value": [10.0, 1.0, 0.2]}))["near zero"].tolist() == [0.0]
    (share,) = _shares(pd.DataFrame(of | {"value": [10.0, 1.0, 1e-9]}))["near zero"]
    assert share == pytest.approx(1 / 3)
    sizes = {"inputs": 2, "draws": 1, "image_side": 2, "channels": 1, "kernel": 1}
    study = Degenerate(width=4, experts=[2], **sizes)
    found = study.run(1).rows
    assert found["value"].tolist() != study.run(2).rows["value"].tolist()
    torch.manual_seed(1)
    layer, inputs = Experts(4, 4, 1, kernel=1, gates="constant"), torch.randn(2, 4, 1, 1)
    values = found.query("layer == 'dense' and experts == 1")["value"].tolist()
    assert values == pytest.approx(singular_values(layer, inputs).mean(0).tolist())


@pytest.mark.filterwarnings("error")
def test_what_is_given_twice_counts_once_and_one_pair_has_no_p(rows):
    options = ("heads=[Softmax,MoS + GSS,Softmax]", "alphas=[0.1,0.1]", "seeds=1", "more_words=[]")
    found = rows("mode_matching", *TINY["mode_matching"], *options, "dims=[2]", "steps=2")
    assert list(found["head"]) == ["Softmax", "MoS + GSS"]


def test_a_pair_is_the_mean_difference_of_one_problem():
    base = {"alpha": 0.1, "words": 8, "rank": 3, "cross_entropy": 1.0}
    lines = [
        base | {"head": head, "seed": seed, "dim": dim, "mode_match": match}
        for head, matches in (("Softmax", (0.2, 0.4, 0.3, 1.0)), ("MoS", (0.4, 0.5, 0.6, 1.0)))
        for (seed, dim), match in zip(((0, 1), (0, 2), (1, 1), (1, 2)), matches, strict=True)
    ]
    (found,) = against_softmax(pd.DataFrame(lines)).to_dict("records")
    assert found["pairs"] == 2  # at seed 1, d = 2 softmax matches all modes
    assert found["mode_match − softmax"] == pytest.approx((0.15 + 0.3) / 2)
    assert found["largest rank − d"] == 2


def test_dirichlet_rows_have_the_moments_of_the_distribution():
    """E p = 1 / M, Var p = (1 / M) (1 - 1 / M) / (M alpha + 1)."""
    probs = np.exp(dirichlet_log_probs(0.5, 4000, 4, np.random.RandomState(0)))
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_allclose(probs.mean(0), 0.25, atol=0.02)
    np.testing.assert_allclose(probs.var(0), 0.25 * 0.75 / 3, atol=0.005)


def test_a_perfect_fit_scores_as_one():
    target = torch.log_softmax(torch.randn(9, 5, dtype=torch.float64), 1)
    found = score(target, target)
    assert (found["mode_match"], found["rank"]) == (1, found["true_rank"])
    assert found["kl"] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("degenerate", "kernel=2"), "kernel must be odd, but is 2"),
        (("mode_matching", "heads=[MoS + SSS]"), "heads must be one of Softmax, SS, "),
        (("mode_matching", "heads=[SS,MoS]"), "heads must name Softmax and others"),
        (("mode_matching", "heads=[Softmax]"), "heads must name Softmax and others"),
        (("mode_matching", "more_words=[1]"), "more_words must be a whole number of at least 2"),
        (("mode_matching", "more_words=8"), "more_words must be a list such as"),
        (("gss_pieces", "k=[0]"), "k must be greater than 0, but is 0"),
    ],
)
def test_a_mistake_is_one_line(options, expected, refused):
    assert expected in refused("study", *options)


def test_a_seed_that_is_typed_is_that_of_the_rows(rows):
    options = ("degenerate", "width=8", "experts=[2]", "inputs=2", "draws=1", "image_side=3")
    of_seeds = [rows(*options, f"seed={seed}") for seed in (1, 2, 2)]
    assert not of_seeds[0].equals(of_seeds[1])
    assert of_seeds[1].equals(of_seeds[2])
