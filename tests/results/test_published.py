"""Published values are told from ours: a run is the same experiment, or says in what it differs."""

import pytest
import yaml

from lmkit.cli.entry import CONFIGS
from lmkit.cli.finetune import published_config
from lmkit.data.corpus import TextCorpus
from lmkit.results.frame import results
from lmkit.results.groups import grouped
from lmkit.results.published import CORPORA, nearest, published, published_curves
from tests.results.forging import change


def nearest_in(root):
    """By label, the nearest experiment and the differences."""
    runs, _ = grouped(results(str(root)))
    found = nearest(runs, published_config).merge(runs.drop_duplicates("group"), on="group")
    return {row["label"]: (row["experiment_x"], row["differs"]) for _, row in found.iterrows()}


def test_every_value_has_its_source():
    table = published()
    assert table[["paper", "table", "row", "quantity", "value", "n"]].notna().all(axis=None)
    assert not table.duplicated().any()


@pytest.fixture
def reference(data_root) -> dict:
    path = data_root.parent / "reference" / "published_results.yaml"
    return yaml.safe_load(path.read_text())


def test_values_of_table_2_are_those_of_the_reference(reference):
    table = published().query("paper == 'Parthiban et al. 2021' and table == 'table 2'")
    for corpus, prefix in (("penn", "penn"), ("wikitext-2", "wt2")):
        for head, values in reference["parthiban2021"]["table2"][corpus].items():
            ours = table[table["experiment"] == f"{prefix}_{head}"].set_index("quantity")
            for quantity in ("train_ppl", "valid_ppl", "test_ppl"):
                assert ours.loc[quantity, ["value", "spread"]].tolist() == values[quantity]
            rank = ours.loc[f"rank.press@{CORPORA[prefix].rank_contexts}"]
            assert rank[["value", "spread"]].tolist() == values["rank"]


def test_single_runs_are_those_of_the_reference(reference):
    """Tables 6, 10 and 11 of Parthiban et al. 2021, and table 5 of Yang et al. 2018."""
    found = published().set_index(["table", "experiment", "quantity"])["value"]
    of = reference["parthiban2021"]
    for corpus, prefix in (("penn", "penn"), ("wikitext-2", "wt2")):
        contexts = CORPORA[prefix].rank_contexts
        measures = ("press", "effective_0.001", "effective_0.0001", "effective_1e-05")
        for head, ranks in of["table6_ranks"][corpus].items():
            names = [("table 6", f"{prefix}_{head}", f"rank.{m}@{contexts}") for m in measures]
            assert found[names].tolist() == ranks
        quantities = ("train_ppl", "valid_ppl", "test_ppl", f"rank.press@{contexts}")
        for kind, suffix in (("nt_asgd_n5", "_nt"), ("et_asgd_200", "")):
            for head, values in of["sm_table10_11"][corpus][kind].items():
                table, name = "supplement, tables 10 and 11", f"{prefix}_{head}{suffix}"
                assert found[[(table, name, q) for q in quantities]].tolist() == values
    for head, values in reference["yang2018"]["table5_penn"].items():
        with_nt = "penn_awd_lstm" if head == "softmax" else f"penn_{head}_nt"
        for name in (f"penn_{head}", with_nt):
            quantities = ("rank.press_valid", "rank.press@82429", "divergence.valid")
            names = [("table 5", name, q) for q in quantities]
            assert found[names].tolist() == values[:3]


def test_a_title_of_several_tables_puts_these_first():
    title = "Parthiban et al. 2021, table 6 and figure 7; supplement, figures 2 to 5"
    assert set(published(title)["table"][:30]) == {"table 6"}
    title = "Parthiban et al. 2021, table 2; supplement, table 1"
    assert set(published(title)["table"][:78]) == {"table 2", "supplement, table 1"}


def test_the_fingerprints_are_those_of_the_corpora(data_root):
    for prefix, folder in (("penn", "penn"), ("wt2", "wikitext-2")):
        corpus = TextCorpus(folder, str(data_root), folder)
        assert CORPORA[prefix].sha256 == corpus.fingerprint()


def test_a_run_of_the_composed_configuration_is_the_experiment(tmp_path, make_run):
    make_run(tmp_path)
    make_run(tmp_path, transform="gss", options={"head.transform.k": 1.25})
    make_run(tmp_path, transform="outside")
    make_run(tmp_path, mixture="softmaxes", trigger="nt")
    assert nearest_in(tmp_path) == {
        "Softmax": ("penn_softmax", []),
        "GSS": ("penn_gss", ["head.transform.k 1.25 (2.5)"]),
        "MoS": ("penn_mos_nt", []),
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer.lr": 5}, ["optimizer.lr 5 (20)"]),
        ({"windows.test_batch_size": 10}, ["windows.test_batch_size 10 (1)"]),
        ({"trainer.precision": "bf16-mixed"}, ["trainer.precision bf16-mixed (32-true)"]),
        ({"trigger.epoch": 100}, ["trigger.epoch 100 (200)"]),
        (
            {"optimizer": {"_target_": "torch.optim.Adam", "lr": 20, "weight_decay": 1.2e-6}},
            ["optimizer Adam (SGD)"],
        ),
        ({"patience": 3}, ["patience 3 (100)"]),
        ({"max_epochs": 900}, []),  # it ended by its patience before
        ({"trainer.deterministic": True, "windows.eval_length": 35}, []),
    ],
)
def test_everything_that_decides_the_numbers_is_compared(tmp_path, make_run, options, told):
    make_run(tmp_path, options=options)
    assert nearest_in(tmp_path) == {"Softmax": ("penn_softmax", told)}


@pytest.mark.parametrize(
    ("options", "is_alike"),
    [
        ({"trainer.precision": "bf16-mixed", "patience": 3}, True),
        ({"trainer.precision": "bf16-mixed", "optimizer.lr": 5}, False),
        ({"windows.test_batch_size": 10}, False),
    ],
)
def test_curves_compare_where_runs_differ_in_end_and_rounding_alone(
    tmp_path, make_run, options, is_alike
):
    make_run(tmp_path, options=options)
    runs, _ = grouped(results(str(tmp_path)))
    assert nearest(runs, published_config)["is_alike"].tolist() == [is_alike]


def test_a_run_that_a_callback_ended_is_not_as_published(tmp_path, make_run):
    run = make_run(tmp_path)
    change(run, "result.json", lambda c: c["budget"].update(stopped="callback"))
    assert nearest_in(tmp_path)["Softmax"][1] == ["ended by a callback"]


def test_a_run_with_less_patience_for_small_gains_is_not_as_published(tmp_path, make_run):
    run = make_run(tmp_path)
    change(run, "result.json", lambda c: c["budget"].update(stopped="patience", min_delta=0.5))
    assert nearest_in(tmp_path)["Softmax"][1] == ["stopping.min_delta 0.5 (0)"]


def test_another_text_is_not_as_published(tmp_path, make_run):
    run = make_run(tmp_path)
    change(run, "identity.json", lambda c: c["settings"].update(data_sha256="0" * 64))
    assert nearest_in(tmp_path)["Softmax"][1] == ["another text of the same size"]


def test_a_part_of_the_text_is_not_as_published(tmp_path, make_run):
    make_run(tmp_path, train_tokens=200000)
    assert nearest_in(tmp_path)["Softmax"][1] == ["data.train_tokens 200,000 (all)"]


def test_nothing_was_published_of_other_words(tmp_path, make_run):
    make_run(tmp_path, sizes=(4000, 111000), name="penn_softmax")
    assert nearest_in(tmp_path) == {}


def test_published_curves_are_of_experiments_that_are_configured():
    curves = published_curves()
    assert not curves.duplicated(["log", "epoch"]).any()  # a restart would be drawn backwards
    assert not curves["note"].str.contains("windows", na=False).any()  # of a part of an epoch
    assert curves[["train_ppl", "source"]].notna().all(axis=None)
    for experiment in curves["experiment"].dropna().unique():
        name = experiment.removesuffix("_finetune")
        assert (CONFIGS / "experiment" / f"{name}.yaml").is_file(), experiment
