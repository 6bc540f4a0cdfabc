"""One function for every option that varies."""

import pytest

from lmkit.report.over_option import over_options
from lmkit.results.frame import results
from lmkit.results.groups import grouped
from tests.results.forging import change


def lines(root):
    """By the axis's label: the points of each line."""
    runs, _ = grouped(results(str(root)))
    drawn = over_options(runs)
    if drawn is None:
        return {}
    figure = drawn.figure
    half = len(figure.axes) // 2
    return {
        below.get_xlabel().replace("\n", ""): {
            line.get_label(): list(zip(*map(list, line.get_data()), strict=True))
            for line in above.get_lines()
        }
        for above, below in zip(figure.axes[:half], figure.axes[half:], strict=True)
    }


def test_values_of_an_option_are_a_line_each_at_its_best_rate(tmp_path, make_run):
    for experts, ppl in ((5, 58.0), (10, 57.0)):
        for lr, more in ((5, 0.0), (20, 1.0)):
            options = {"head.mixture.num_experts": experts, "optimizer.lr": lr}
            make_run(tmp_path, 1, ppl + more, 900 * experts, "softmaxes", options=options)
    assert lines(tmp_path) == {"K, experts": {"MoS": [(5, 58.0), (10, 57.0)]}}


def test_a_whole_decoder_stands_at_its_width(tmp_path, make_run):
    make_run(tmp_path, 1, 57.0)
    make_run(tmp_path, 1, 90.0, options={"head.decoder_rank": 8})
    assert lines(tmp_path) == {"rank of the decoder": {"Softmax": [(8, 90.0), (400, 57.0)]}}


def test_a_product_of_the_full_rank_is_no_whole_decoder(tmp_path, make_run):
    options = {"trunk.emb_dim": 16, "trunk.out_dim": 24, "head.tie_weights": False}
    make_run(tmp_path, 1, 57.0, options=options)
    for rank, ppl in ((16, 60.0), (8, 90.0)):
        make_run(tmp_path, 1, ppl, options=options | {"head.decoder_rank": rank})
    points = [(8, 90.0), (16, 60.0), (24, 57.0)]
    assert lines(tmp_path) == {"rank of the decoder": {"Softmax": points}}
    make_run(tmp_path, 1, 58.0, options=options | {"head.decoder_rank": 24})
    points[-1] = (24, 58.0)
    assert lines(tmp_path) == {"rank of the decoder": {"Softmax": points}}


def test_widths_are_options_too(tmp_path, make_run):
    untied = {"head.tie_weights": False}
    for width in (100, 200):
        make_run(tmp_path, 1, 57.0 + width, options=untied | {"trunk.out_dim": width})
        options = untied | {"head.mixture.emb_dim": width}
        make_run(tmp_path, 1, 60.0 + width, mixture="softmaxes", options=options)
    make_run(tmp_path, 1, 59.0, mixture="softmaxes", options=untied)
    found = lines(tmp_path)
    assert found["trunk.out_dim"] == {"Softmax": [(100, 157.0), (200, 257.0)]}
    points = [(100, 160.0), (200, 260.0), (280, 59.0)]
    assert found["E, dimension of contexts"] == {"MoS": points}


def test_a_trunk_of_ones_own_may_have_no_sizes(tmp_path, make_run):
    for rank in (8, 16, None):
        run = make_run(tmp_path, 1, 57.0 + (rank or 0), options={"head.decoder_rank": rank})
        change(run, "identity.json", lambda c: c["settings"]["trunk"].pop("emb_dim"))
        change(run, "identity.json", lambda c: c["settings"]["trunk"].pop("out_dim"))
    assert lines(tmp_path) == {"rank of the decoder": {"Softmax": [(8, 65.0), (16, 73.0)]}}


def test_lines_share_all_other_options(tmp_path, make_run):
    for c in (-1.5, 0.0):
        for k in (2.0, 2.5):
            options = {"head.transform.c": c, "head.transform.k": k}
            make_run(tmp_path, 1, 57 + c + k, transform="gss", options=options)
    found = lines(tmp_path)
    assert found["c of GSS"] == {
        "GSS (k=2)": [(-1.5, 57.5), (0.0, 59.0)],
        "GSS (k=2.5)": [(-1.5, 58.0), (0.0, 59.5)],
    }


def test_lines_are_told_apart_by_an_option_that_is_a_text(tmp_path, make_run):
    for start in ("fresh", "trunk"):
        for rank in (4, 8):
            options = {"head.decoder_rank": rank, "head.start": start}
            make_run(tmp_path, 1, 57.0 + rank, options=options)
    assert lines(tmp_path) == {
        "rank of the decoder": {
            f"Softmax (start {start})": [(4, 61.0), (8, 65.0)] for start in ("fresh", "trunk")
        }
    }


def test_learning_rates_are_no_option_of_a_model(tmp_path, make_run):
    for lr in (5, 10, 20):
        make_run(tmp_path, 1, 57.0 + lr, options={"optimizer.lr": lr})
    assert lines(tmp_path) == {}


def test_what_is_true_or_false_is_no_axis_where_some_runs_lack_it_too(tmp_path, make_run):
    for flag in (True, False):
        options = {"head.transform.flag": flag}
        make_run(tmp_path, 1, 57.0 + flag, transform="outside", options=options)
    make_run(tmp_path, 1)
    assert lines(tmp_path) == {}


def test_many_options_stand_in_several_lines_and_ticks_at_their_values(tmp_path, make_run):
    options = {
        "head.mixture.num_experts": (5, 10),
        "head.mixture.latent_dropout": (0.1, 0.29),
        "optimizer.weight_decay": (1e-6, 1e-5, 1e-4),
        "trainer.gradient_clip_val": (0.1, 0.25),
    }
    first = {option: values[0] for option, values in options.items()}
    make_run(tmp_path, 1, 57.0, 900, "softmaxes", options=first)
    for option, values in options.items():
        for value in values[1:]:
            make_run(tmp_path, 1, 57.0, 900, "softmaxes", options=first | {option: value})
    figure = over_options(grouped(results(str(tmp_path)))[0]).figure
    figure.draw_without_rendering()
    lowest = [axes for axes in figure.axes if axes.get_xlabel()]
    assert len(lowest) == 4
    (decay,) = (axes for axes in lowest if "weight_decay" in axes.get_xlabel())
    assert list(decay.get_xticks()) == pytest.approx([1e-6, 1e-5, 1e-4])
    for axes in lowest:
        place = axes.xaxis.label.get_window_extent()
        assert place.x0 >= 0
        assert place.x1 <= figure.bbox.x1


def test_runs_of_other_budgets_are_no_line(tmp_path, make_run):
    for experts, epochs in ((5, 750), (10, 900)):
        options = {"head.mixture.num_experts": experts, "max_epochs": epochs}
        make_run(tmp_path, 1, 57.0, 900, "softmaxes", options=options)
    assert lines(tmp_path) == {}
