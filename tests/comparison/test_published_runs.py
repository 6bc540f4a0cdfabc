"""Groups beside what was published of them."""

from __future__ import annotations

import pytest

from lmkit.comparison.baselines import with_baselines
from lmkit.comparison.published_runs import deviation, published_of


def test_published_facts_go_to_the_published_head_on_the_published_corpus(
    tmp_path, make_run, study_of
):
    make_run(tmp_path, 1, 57.26)
    make_run(tmp_path, 1, transform="gss")
    make_run(tmp_path, 1, transform="gss", changes={"transform.k": 1.25})
    make_run(tmp_path, 1, transform="outside")
    make_run(tmp_path, 1, mixture="softmaxes", trigger="nt")
    study, _ = study_of(tmp_path)
    compared = with_baselines(study)
    experiments = {
        each.group.label: each.published and each.published.experiment for each in compared
    }
    assert experiments == {
        "Softmax": "penn_softmax",
        "GSS (k=1.25)": None,
        "GSS (k=2.5)": "penn_gss",
        "Cube": None,
        "MoS": "penn_mos_nt",
    }
    softmax = compared[0]
    assert softmax.published.differences == []
    spread, fact = softmax.group.spread("test_ppl"), softmax.published.facts.test_ppl
    assert deviation(spread, fact) == pytest.approx(2.0)


def test_what_is_not_as_published_is_told(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, train_tokens=200000, mixture="softmaxes")
    study, _ = study_of(tmp_path, "mos")
    assert published_of(study.groups[0], study.corpus).differences == [
        "24.22M parameters (21.50M)",
        "first 200,000 tokens of the training text (all)",
    ]


def test_nothing_is_published_of_another_corpus(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, sizes=(200, 19999))
    study, _ = study_of(tmp_path)
    assert published_of(study.groups[0], study.corpus) is None


def test_p_values_are_corrected_over_the_groups(tmp_path, make_run, study_of):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57 + 0.1 * seed)
        make_run(tmp_path, seed, 57.3 + 0.2 * seed, transform="gss")
        make_run(tmp_path, seed, 55 + 0.1 * seed, mixture="softmaxes")
    study, _ = study_of(tmp_path)
    softmax, gss, mos = with_baselines(study)
    assert softmax.comparison is None
    assert gss.baseline is softmax.group
    assert mos.p_holm == pytest.approx(2 * mos.comparison.p_student)
    assert gss.p_holm == pytest.approx(gss.comparison.p_student)
