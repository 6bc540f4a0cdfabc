"""Groups beside what was published of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lmkit.cli.entry import CONFIGS
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import (
    Departure,
    departures_in_words,
    deviation,
    not_as_published,
)
from lmkit.data.corpus import TextCorpus
from lmkit.runs.checksums import checked_json, parse_json


def test_published_facts_go_to_the_published_head_on_the_published_corpus(
    tmp_path, make_run, study_of
):
    make_run(tmp_path, 1, 57.26)
    make_run(tmp_path, 1, transform="gss")
    make_run(tmp_path, 1, transform="gss", changes={"transform.k": 1.25})
    make_run(tmp_path, 1, transform="outside")
    make_run(tmp_path, 1, mixture="softmaxes", trigger="nt")
    study, _ = study_of(tmp_path)
    experiments = {
        group.label: group.published and group.published.experiment for group in study.groups
    }
    assert experiments == {
        "Softmax": "penn_softmax",
        "GSS (k=1.25)": None,
        "GSS (k=2.5)": "penn_gss",
        "Cube": None,
        "MoS": "penn_mos_nt",
    }
    softmax = study.groups[0]
    assert softmax.published.differences == ()
    spread, fact = softmax.spread("test_ppl"), softmax.published.facts.test_ppl
    assert deviation(spread, fact) == pytest.approx(2.0)


def differences(study) -> list[str]:
    """Of the one group of a study."""
    (group,) = study.groups
    return list(group.published.differences)


def test_every_published_experiment_is_configured():
    for name in published_section("runs"):
        if name != "penn_mos_lms_plif":  # stands for penn_mos_plif, by its head
            assert (CONFIGS / "experiment" / f"{name}.yaml").is_file()


def test_what_is_not_as_published_is_told(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, train_tokens=200000, mixture="softmaxes")
    study, _ = study_of(tmp_path, "mos")
    assert differences(study) == ["first 200,000 tokens of the training text (all)"]


def notes(study) -> list[str]:
    return not_as_published((group.label, group.published) for group in study.groups)


def test_what_all_groups_differ_in_is_told_once(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, transform="outside", options={"optimizer.lr": 5})  # published nowhere
    assert notes(study_of(tmp_path, "cube")[0]) == []
    make_run(tmp_path, 1, options={"optimizer.lr": 5})
    assert notes(study_of(tmp_path)[0]) == [
        "Softmax is not penn_softmax as published, so the figures do not compare: "
        "optimizer.lr=5 (20)"
    ]
    make_run(tmp_path, 1, transform="gss", options={"optimizer.lr": 5, "trunk.input_dropout": 0})
    make_run(tmp_path, 1, mixture="softmaxes", options={"optimizer.lr": 5})
    assert notes(study_of(tmp_path)[0]) == [
        "Softmax, GSS and MoS are not penn_softmax, penn_gss and penn_mos as published, so "
        "the figures do not compare: optimizer.lr=5 (20)",
        "GSS also: trunk.input_dropout=0 (0.4)",
    ]


def test_groups_that_share_no_difference_are_told_apart(tmp_path, make_run, study_of):
    for head in ("identity", "gss"):
        make_run(tmp_path, 1, transform=head, options={"optimizer.lr": 5})
    make_run(tmp_path, 1, mixture="softmaxes", options={"trunk.input_dropout": 0})
    make_run(tmp_path, 1, mixture="softmaxes", trigger="nt")  # as published
    assert notes(study_of(tmp_path)[0]) == [
        "Softmax, GSS and MoS (input dropout 0, ET 200) are not penn_softmax, penn_gss and "
        "penn_mos as published, so the figures do not compare",
        "Softmax and GSS: optimizer.lr=5 (20)",
        "MoS (input dropout 0, ET 200): trunk.input_dropout=0 (0.4)",
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer.lr": 5, "trunk.input_dropout": 0},
         ["trunk.input_dropout=0 (0.4)", "optimizer.lr=5 (20)"]),
        ({"windows.test_batch_size": 10}, ["windows.test_batch_size=10 (1)"]),
        ({"windows.valid_batch_size": 1}, ["windows.valid_batch_size=1 (10)"]),
        ({"trainer.precision": "bf16-mixed"}, ["trainer.precision=bf16-mixed (32-true)"]),
        ({"trigger.epoch": 100}, ["trigger.epoch=100 (200)"]),
        ({"optimizer": {"_target_": "torch.optim.Adam", "lr": 20, "weight_decay": 1.2e-6}},
         ["optimizer=Adam (SGD)"]),
        ({"patience": 3}, ["patience=3 (100)"]),
        ({"max_epochs": 900}, []),  # it ended by its patience before
        ({"trainer.deterministic": True, "windows.eval_length": 35, "head.chunk_mb": 7}, []),
    ],
)  # fmt: skip
def test_everything_that_decides_the_numbers_is_compared(
    tmp_path, make_run, study_of, options, told
):
    make_run(tmp_path, 1, options=options)
    study, _ = study_of(tmp_path)
    assert differences(study) == told


def test_an_option_at_its_default_is_no_difference(tmp_path, make_run, study_of):
    """A run of a version that did not have the option yet."""
    run = make_run(tmp_path, 1)
    payload = parse_json((run / "identity.json").read_bytes())
    del payload["settings"]["trunk"]["embedding_noise"]
    (run / "identity.json").write_bytes(checked_json(payload))
    study, _ = study_of(tmp_path)
    assert differences(study) == []


def test_another_text_of_the_same_size_is_not_as_published(tmp_path, make_run, study_of):
    run = make_run(tmp_path, 1)
    payload = parse_json((run / "identity.json").read_bytes())
    payload["settings"]["data_sha256"] = "0" * 64
    (run / "identity.json").write_bytes(checked_json(payload))
    study, _ = study_of(tmp_path)
    assert differences(study) == ["another text of the same size"]


def test_the_fingerprints_are_those_of_the_corpora(data_root):
    for prefix, folder in (("penn", "penn"), ("wt2", "wikitext-2")):
        corpus = TextCorpus(folder, str(data_root), folder)
        assert published_section("corpora")[prefix]["sha256"] == corpus.fingerprint()


def test_awd_lstm_is_no_softmax_of_parthiban(tmp_path, make_run, study_of):
    options = {"trunk.hidden_dropout": 0.25, "optimizer.lr": 30, "max_epochs": 500}
    make_run(tmp_path, 1, trigger="nt", name="penn_awd_lstm", options=options | {"patience": None})
    study, _ = study_of(tmp_path)
    (group,) = study.groups
    assert group.published is None
    assert group.departures == {"penn_awd_lstm": ()}


def test_what_was_not_printed_and_other_parameters_are_told(tmp_path, make_run, study_of):
    def published() -> dict[str, tuple[str, ...]]:
        found = [group.published for group in study_of(tmp_path)[0].groups]
        return {each.experiment: each.differences for each in found}

    guessed = "penn_awd_lstm_mos_hyperparameters"
    make_run(tmp_path, 1, trigger="nt", name=guessed)
    file = make_run(tmp_path, 1) / "result.json"
    assert published()["penn_softmax"] == ()
    assert published()[guessed][0] == "size of the last layer not printed"
    result = parse_json(file.read_bytes())
    result["cost"]["parameters"] = 26_600_000
    file.write_bytes(checked_json(result))
    assert published()["penn_softmax"] == ("26.60M parameters (24.22M)",)


def test_nothing_is_published_of_another_corpus(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, sizes=(200, 19999))
    study, _ = study_of(tmp_path)
    assert study.groups[0].published is None


@pytest.mark.parametrize("train_tokens", [None, 200000])
def test_a_run_of_other_columns_hides_no_published_values_and_is_named(
    tmp_path, make_run, study_of, train_tokens
):
    """Its name sorts first; it alone has a test perplexity over 82,420 contexts."""
    odd = make_run(tmp_path, 0, options={"windows.test_batch_size": 10}, sizes=(10000, 82420),
                   train_tokens=train_tokens, name="a")  # fmt: skip
    for seed in (1, 2):
        make_run(tmp_path, seed, train_tokens=train_tokens)
    study, _ = study_of(tmp_path)
    assert study.corpus.test_contexts == 82429
    assert all(group.published is not None for group in study.groups)
    (warning,) = study.disagreements
    assert f"{odd.name} counted 82,420 test contexts, most runs on the same data 82,429" in warning


def test_ten_seeds_are_those_without_the_reported_one(tmp_path, make_run, study_of):
    rng = np.random.default_rng(5)
    seeds = [141, *range(1, 11)]
    ppl = {}
    for transform in ("identity", "gss"):
        for seed in seeds:
            ppl[transform, seed] = float(rng.normal(57, 0.2))
            make_run(tmp_path, seed, ppl[transform, seed], transform=transform)
    study, _ = study_of(tmp_path)
    softmax, gss = study.groups
    of_ten = [[ppl[head, seed] for seed in seeds[1:]] for head in ("gss", "identity")]
    tested = gss.against
    assert tested.ten_seeds.p_student == pytest.approx(stats.ttest_ind(*of_ten).pvalue)
    assert (tested.ten_seeds.n_a, tested.unpaired.n_a, tested.paired.n) == (10, 11, 11)
    assert softmax.against is None
    assert gss.published.reported_seed == 141


def test_with_other_seeds_than_ten_there_is_no_test_as_published(tmp_path, make_run, study_of):
    for transform in ("identity", "gss"):
        for seed in (141, 1, 2):
            make_run(tmp_path, seed, 57 + 0.1 * seed % 0.7, transform=transform)
    study, _ = study_of(tmp_path)
    assert study.groups[1].against.ten_seeds is None


def test_p_values_are_corrected_over_the_groups(tmp_path, make_run, study_of):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57 + 0.1 * seed)
        make_run(tmp_path, seed, 57.3 + 0.2 * seed, transform="gss")
        make_run(tmp_path, seed, 55 + 0.1 * seed, mixture="softmaxes")
    study, _ = study_of(tmp_path)
    softmax, gss, mos = study.groups
    assert softmax.against is None
    assert gss.against.baseline is softmax
    assert mos.against.p_holm == pytest.approx(2 * mos.against.unpaired.p_student)
    assert gss.against.p_holm == pytest.approx(gss.against.unpaired.p_student)


def test_a_group_beside_two_experiments_is_named_once():
    beside = [Departure("A", each, ("lr=5 (20)", f"n=2 ({each})")) for each in ("x", "y", "x")]
    assert departures_in_words(beside) == [
        "A is not x and y as published, so the figures do not compare: lr=5 (20)",
        "A also: n=2 (x)",
        "A also: n=2 (y)",
    ]
