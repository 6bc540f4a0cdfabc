"""How runs become groups, what groups are called, and which stand for their head."""

import math
import shutil

import pandas as pd
import pytest

from lmkit.results.against import against_baseline
from lmkit.results.frame import results
from lmkit.results.groups import best_rate, grouped, heads, measured_alike, summary
from tests.results.forging import change


def groups_in(root, baseline="softmax"):
    """The number of runs by label, in the order of tables."""
    runs, _ = grouped(results(str(root)), baseline)
    return runs.groupby("label", sort=False).size().to_dict()


def test_runs_that_differ_by_seed_alone_are_a_group_in_the_papers_order(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.05 * seed)
        make_run(tmp_path, seed, 56.9 + 0.05 * seed, transform="gss")
    make_run(tmp_path, 1, transform="gss", options={"head.transform.c": -2.0})
    make_run(tmp_path, 1, 58.0, trigger="nt")
    make_run(tmp_path, 1, 56.0, mixture="softmaxes")
    make_run(tmp_path, 1, 56.0, transform="outside")
    assert groups_in(tmp_path) == {
        "Softmax (ET 200)": 3,
        "Softmax (NT 5)": 1,
        "GSS (c=−2)": 1,
        "GSS (c=−1.5)": 3,
        "Cube": 1,
        "MoS": 1,
    }
    assert next(iter(groups_in(tmp_path, "mos"))) == "MoS"
    runs, _ = grouped(results(str(tmp_path)))
    softmax = summary(runs).loc[runs["group"].iloc[0]]
    assert softmax["test_ppl mean"] == pytest.approx(57.1)
    assert softmax["test_ppl std"] == pytest.approx(0.05)
    assert softmax["seeds"] == 3


def test_threads_and_chunks_are_no_groups_and_a_seed_counts_once(tmp_path, make_run):
    run = make_run(tmp_path)
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    change(twin, "identity.json", lambda c: c["settings"].update(threads=8))
    change(twin, "identity.json", lambda c: c["settings"]["head"].update(chunk_mb=64))
    runs, left_out = grouped(results(str(tmp_path)))
    assert list(runs.index) == [run.name]
    assert left_out == {"twin": f"the head and seed of {run.name}"}


def test_of_copies_of_a_run_one_that_can_be_read_whole_counts(tmp_path, make_run):
    run = make_run(tmp_path)
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy/config.yaml").write_text("")
    runs, left_out = grouped(results(str(tmp_path)))
    assert list(runs.index) == [run.name]
    assert left_out == {"copy": f"the head and seed of {run.name}"}


START = {"identity": "0" * 12, "weights_sha256": "1"}


@pytest.mark.parametrize(
    ("options", "spent", "own", "others"),
    [
        ({"optimizer.lr": 5}, {}, "rate 5", "rate 20"),
        ({"max_epochs": 3}, {}, "max epochs 3", "max epochs 750"),
        ({"patience": 3}, {}, "patience 3", "patience 100"),
        ({}, {"stopped": "callback"}, "ended by a callback", "not ended by a callback"),
        ({}, {"min_delta": 0.5}, "min delta 0.5", "min delta 0"),
        ({"finetuned_from": START}, {}, "finetuned from penn_softmax", "not finetuned"),
    ],
)
def test_what_makes_other_runs_makes_another_group(tmp_path, make_run, options, spent, own, others):
    for seed in (1, 2):
        make_run(tmp_path, seed)
    other = make_run(tmp_path, 3, options=options, name="penn_softmax_finetune")
    change(other, "result.json", lambda c: c["budget"].update(spent))
    assert groups_in(tmp_path) == {f"Softmax ({own})": 1, f"Softmax ({others})": 2}


def test_a_width_that_is_not_the_trunks_makes_a_group(tmp_path, make_run):
    for seed, width in ((1, 4), (2, 4), (1, 280)):
        options = {"head.tie_weights": False, "head.mixture.emb_dim": width}
        make_run(tmp_path, seed, mixture="softmaxes", options=options)
    assert groups_in(tmp_path) == {"MoS (E=4)": 2, "MoS": 1}
    for width in (200, 280):  # which the head's follows
        sizes = dict.fromkeys(("trunk.emb_dim", "trunk.out_dim", "head.mixture.emb_dim"), width)
        make_run(tmp_path / "trunks", mixture="softmaxes", options=sizes)
    runs, _ = grouped(results([str(tmp_path), str(tmp_path / "trunks")]))
    assert runs.loc[runs["folder"].str.contains("trunks"), "variant"].nunique() == 1


def test_finetuned_runs_are_seeds_of_one_start(tmp_path, make_run):
    """Each goes on from a run, or from what was finetuned from one, of its own seed."""
    means = {}
    for rate, more in ((5, 0.0), (20, 1.0)):
        for seed in (1, 2):
            start = make_run(tmp_path, seed, 57 + more, options={"optimizer.lr": rate})
            for name in ("penn_softmax_finetune", "penn_softmax_finetune_finetune"):
                of = {"identity": start.name[-12:], "weights_sha256": "1"}
                options = {"finetuned_from": of, "optimizer.lr": 9}
                start = make_run(tmp_path, seed, 50 + more, options=options, name=name)
            means[start.name] = rate
    runs, left_out = grouped(results(str(tmp_path)))
    assert left_out == {}
    again = runs.loc[list(means)]
    by_start = again.groupby(means)["group"]
    assert by_start.nunique().to_list() == [1, 1]
    assert again["group"].nunique() == 2
    lost = next(tmp_path.glob("penn_softmax_finetune-*"))
    lost.rename(tmp_path / "elsewhere")  # its start is that of the other seed, or a third
    runs, left_out = grouped(results(str(tmp_path)))
    assert runs.loc[list(means), "group"].nunique() == 3
    assert left_out == {}
    only, left_out = grouped(results(str(tmp_path / "*finetune_finetune-*")))
    assert only["group"].nunique() == 1  # their starts are not known
    assert len(left_out) == 2


def test_heads_of_one_name_and_different_classes_are_different(tmp_path, make_run):
    make_run(tmp_path, transform="outside")
    make_run(tmp_path, transform="outside", options={"head.transform._target_": "mine.Cube"})
    assert groups_in(tmp_path) == {"Cube (heads.Cube)": 1, "Cube (mine.Cube)": 1}


def test_an_option_of_a_users_mixture_makes_groups_whatever_its_name(tmp_path, make_run):
    for size in (10, 20):
        options = {"head.mixture._target_": "mine.Mixture", "head.mixture.hidden_dim": size}
        make_run(tmp_path, mixture="softmaxes", options=options)
    assert groups_in(tmp_path) == {"MoS (hidden dim 10)": 1, "MoS (hidden dim 20)": 1}


def test_a_part_that_only_some_runs_have_is_named_where_it_lacks(tmp_path, make_run):
    graphs = {"cuda_graphs": {"_target_": "lmkit.training.callbacks.cuda_graphs.CudaGraphs"}}
    run = make_run(tmp_path, 1)
    change(run, "identity.json", lambda c: c["settings"].update(callbacks=graphs))
    make_run(tmp_path, 2, 56.0)
    assert groups_in(tmp_path) == {"Softmax (CudaGraphs)": 1, "Softmax (no cuda graphs)": 1}
    norm = {"callbacks": {"norm": {"_target_": "mine.Norm"}}, "sources": {"mine.Norm": "1" * 64}}
    change(run, "identity.json", lambda c: c["settings"].update(norm))
    assert groups_in(tmp_path) == {"Softmax (Norm, source 11111111)": 1, "Softmax (no norm)": 1}


def test_the_source_of_a_users_head_is_the_heads_and_no_training(tmp_path, make_run):
    sources = {"heads.Cube": "12345678"}
    for batch_size, ppl in ((None, 57.0), (99, 56.0)):
        options = {"windows.batch_size": batch_size} if batch_size else {}
        run = make_run(tmp_path, 1, ppl, transform="outside", options=options)
        change(run, "identity.json", lambda c: c["settings"].update(sources=sources))
    make_run(tmp_path, 1, 58.0)
    make_run(tmp_path, 1, 58.0, transform="gss")
    runs, _ = grouped(results(str(tmp_path)))
    cube = against_baseline(runs).set_index("head").loc["Cube"]
    assert (cube["test_ppl"], cube["differs"]) == (57.0, ())  # trained as the others


def test_variants_are_told_apart_whatever_run_makes_them_variants(tmp_path, make_run):
    """A user's mixture has sizes that count, of which MoS has other values at another width."""
    for size in (10, 20):
        options = {"head.mixture.in_dim": size}
        for seed in (1, 2):
            make_run(tmp_path, seed, 57.0 + size, mixture="softmaxes", options=options)
    mine = {"head.mixture._target_": "mine.Mixture"}
    make_run(tmp_path, 1, 300.0, mixture="softmaxes", options=mine)
    runs, _ = grouped(results(str(tmp_path)))
    chosen = against_baseline(runs)
    assert chosen["head_label"].is_unique


def test_settings_are_corpora_and_trunks_and_no_two_have_one_title(tmp_path, make_run):
    make_run(tmp_path)
    make_run(tmp_path, train_tokens=200000)
    make_run(tmp_path, train_tokens=200000, trunk="Transformer", seed=2)
    for words in (50, 60):
        make_run(tmp_path, sizes=(words, 100), options={"data.num_words": words})
    runs, _ = grouped(results(str(tmp_path)))
    assert set(runs["setting_title"]) == {
        "Penn Treebank, AWD-LSTM, num words none",
        "Penn Treebank, AWD-LSTM, num words 50",
        "Penn Treebank, AWD-LSTM, num words 60",
        "Penn Treebank (first 200,000 training tokens), AWD-LSTM",
        "Penn Treebank (first 200,000 training tokens), Transformer",
    }


def test_settings_of_one_name_and_equal_options_are_told_apart_by_their_data(tmp_path, make_run):
    """Two texts of the user's, read alike, and one of them read otherwise."""
    for digit, min_count in (("1", 0), ("2", 0), ("2", 5)):
        run = make_run(tmp_path, sizes=(50, 100), options={"data.min_count": min_count})
        sha256 = digit * 32 + str(min_count) * 32
        change(run, "identity.json", lambda c, sha=sha256: c["settings"].update(data_sha256=sha))
        run.rename(tmp_path / sha256)
    runs, _ = grouped(results(str(tmp_path)))
    assert set(runs["setting_title"]) == {
        "Penn Treebank, AWD-LSTM, min count 0, data 11111111",
        "Penn Treebank, AWD-LSTM, min count 0, data 22222222",
        "Penn Treebank, AWD-LSTM, min count 5",
    }


def test_a_users_corpus_read_otherwise_is_another_setting(tmp_path, make_run):
    """Its fingerprint says nothing of an option that it has of its own."""
    for backwards, ppl in ((False, 57.0), (True, 40.0)):
        run = make_run(tmp_path, 1, ppl)
        data = {"_target_": "mine.Backwards", "backwards": backwards}
        change(run, "identity.json", lambda c, data=data: c["settings"].update(data=data))
        run.rename(tmp_path / f"backwards-{backwards}")
    runs, left_out = grouped(results(str(tmp_path)))
    assert (runs["setting"].nunique(), left_out) == (2, {})


def at_rate(root, make_run, lr, ppls, **how):
    for seed, ppl in enumerate(ppls, 1):
        make_run(root, seed, ppl, options={"optimizer.lr": lr}, **how)


def test_each_head_stands_at_the_rate_of_lowest_valid_perplexity(tmp_path, make_run):
    """A rate of one lucky seed does not beat one of several."""
    at_rate(tmp_path, make_run, 5, [57.0, 57.2])
    at_rate(tmp_path, make_run, 10, [58.0, 58.2])
    at_rate(tmp_path, make_run, 20, [50.0])
    at_rate(tmp_path, make_run, 5, [57.5], transform="gss")
    at_rate(tmp_path, make_run, 10, [57.3], transform="gss")
    runs, _ = grouped(results(str(tmp_path)))
    best = best_rate(runs).groupby("label")["seed"].size().to_dict()
    assert best == {"Softmax (rate 5)": 2, "GSS (rate 10)": 1}
    assert set(heads(runs)["label"]) == set(best)


def test_a_transforms_own_rate_is_one(tmp_path, make_run):
    for rate, ppl in ((1.0, 57.0), (2.0, 56.0)):
        for seed in (1, 2):
            options = {"module.transform_lr": rate}
            make_run(tmp_path, seed, ppl + seed / 10, transform="gss", options=options)
    runs, _ = grouped(results(str(tmp_path)))
    assert set(best_rate(runs)["module.transform_lr"]) == {2.0}


def test_verdicts_are_by_holms_p(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        for of in ({"transform": "gss"}, {"mixture": "softmaxes"}):
            make_run(tmp_path, seed, 56.72 + 0.1 * seed, **of)
    others = against_baseline(grouped(results(str(tmp_path)))[0]).query("not is_baseline")
    assert (others["p_welch"] < 0.05).all()
    assert others["verdict"].tolist() == ["open", "open"]


@pytest.mark.parametrize("failed", [900.0, math.inf, math.nan])
def test_a_rate_at_which_seeds_failed_comes_last(tmp_path, make_run, failed):
    """What is left of it are its lucky seeds."""
    at_rate(tmp_path, make_run, 5, [57.0, 57.2, 57.3])
    at_rate(tmp_path, make_run, 10, [56.0, 56.2, failed])
    at_rate(tmp_path, make_run, 10, [56.0, failed], transform="gss")
    at_rate(tmp_path, make_run, 10, [56.0, 56.2, failed], mixture="softmaxes")
    at_rate(tmp_path, make_run, 1, [80.0], mixture="softmaxes")  # a search
    if math.isnan(failed):  # as where training stops at once
        for result in tmp_path.glob("*/result.json"):
            if "NaN" in result.read_text():
                result.unlink()
                log = "12:00:00  stopped at step 2: the loss of window 2 is not finite"
                (result.parent / "train.log").write_text(log)
    runs, _ = grouped(results(str(tmp_path)))
    best = best_rate(runs).groupby("label")["seed"].size().to_dict()
    assert best == {"Softmax (rate 5)": 3, "GSS": 1, "MoS (rate 10)": 2}


def test_the_toy_language_is_whole_beside_a_text_of_files(tmp_path, make_run):
    make_run(tmp_path)
    make_run(tmp_path, train_tokens=400, trunk="Transformer", options={"data.folder": None})
    runs, _ = grouped(results(str(tmp_path)))
    assert not runs["setting_title"].str.contains("first 400").any()


def test_a_limited_decoder_is_not_the_head_however_many_seeds_it_has(tmp_path, make_run):
    at_rate(tmp_path, make_run, 5, [57.0])
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 50.0, options={"optimizer.lr": 5, "head.decoder_rank": 2})
    runs, _ = grouped(results(str(tmp_path)))
    assert set(heads(runs)["label"]) == {"Softmax"}
    assert "Softmax (decoder rank 2)" in set(runs["label"])


def test_limited_decoders_are_heads_where_none_is_whole(tmp_path, make_run):
    for rank in (2, 4):
        for transform in ("identity", "gss"):
            options = {"head.decoder_rank": rank}
            make_run(tmp_path, 1, 60.0 - rank, transform=transform, options=options)
    make_run(tmp_path, 1, train_tokens=200000)
    chosen = heads(grouped(results(str(tmp_path)))[0])
    ranks = chosen["head.decoder_rank"].fillna(0)  # of a whole one
    assert sorted(zip(chosen["head"], ranks, strict=True)) == [
        ("GSS", 4),
        ("Softmax", 0),
        ("Softmax", 4),
    ]


def test_heads_are_those_trained_as_most(tmp_path, make_run):
    for head in ("identity", "gss"):
        at_rate(tmp_path, make_run, 20, [57.0, 57.1], transform=head)
    for seed in (11, 12, 13):
        make_run(tmp_path, seed, 50.0, options={"max_epochs": 900})
    runs, _ = grouped(results(str(tmp_path)))
    chosen = heads(runs)
    assert chosen["max_epochs"].unique().tolist() == [750]
    assert chosen.groupby("head")["seed"].size().to_dict() == {"Softmax": 2, "GSS": 2}


def test_of_a_grid_the_lowest_on_valid_stands_for_its_head(tmp_path, make_run):
    for c in range(5):
        for seed in (1, 2):
            make_run(tmp_path, seed, 57.0 - c, transform="gss", options={"head.transform.c": c})
    make_run(tmp_path, 1, 40.0, transform="gss", options={"head.transform.c": 9})
    runs, _ = grouped(results(str(tmp_path)))
    assert heads(runs)["head.transform.c"].tolist() == [4, 4]


@pytest.mark.parametrize("how", ["split", "num_contexts", "options.lr", "smoothing", "beam"])
def test_what_seeds_measured_differently_has_no_mean(how):
    told, ppl = f"mine.{how}", "mine.score"
    runs = pd.DataFrame({"group": [0, 0, 1, 1], told: [1, 2, 3, 3], ppl: [0.1, 0.3, 0.2, 0.4]})
    assert measured_alike(runs)[ppl].tolist() == pytest.approx(
        [math.nan] * 2 + [0.2, 0.4], nan_ok=True
    )


def test_whatever_is_chosen_is_chosen_on_valid(tmp_path, make_run):
    """A rate, a variant of a head, how it was trained, and the baseline of the others."""

    def chosen(name: str, *of_each: dict, **how) -> pd.DataFrame:
        for number, options in enumerate(of_each):  # the last is best on valid, and worst on test
            for seed in (1, 2):
                ppls = {"ppl": 57 + number + seed / 10, "valid": 61 - number + seed / 10}
                make_run(tmp_path / name, seed, options=options, **ppls, **how)
        return grouped(results(str(tmp_path / name)))[0]

    rates = chosen("rates", {"optimizer.lr": 5}, {"optimizer.lr": 10})
    assert set(best_rate(rates)["optimizer.lr"]) == {10}
    grid = chosen("grid", *({"head.transform.c": c} for c in range(1, 6)), transform="gss")
    assert set(heads(grid)["head.transform.c"]) == {5}
    training = chosen("training", {"trunk.input_dropout": 0.1}, {"trunk.input_dropout": 0.2})
    assert set(heads(training)["trunk.input_dropout"]) == {0.2}
    tied = ({"head.tie_weights": True}, {"head.tie_weights": False})
    for seed in (1, 2):
        make_run(tmp_path / "tied", seed, 56.0 + seed / 10, transform="gss", valid=50.0)
    against = against_baseline(chosen("tied", *tied))
    (gss,) = against[~against["is_baseline"]].to_dict("records")
    assert gss["baseline_ppl"] == pytest.approx(58.15)
    assert gss["difference"] == pytest.approx(56.15 - 58.15)
    assert gss["valid_difference"] == pytest.approx(50 - 60.15)
