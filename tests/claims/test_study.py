"""The study's rules, and that its texts are their templates with what its runs have."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rules
import study
import texts
import torch
import yaml
from contrasts import contrasts, over_trunks
from learnt_curve import SLOPES, LearntCurve
from mapped_softmaxes import MappedSoftmaxes
from scipy.stats import t as students_t
from scipy.stats import ttest_ind

from lmkit.experiment.definition import define
from lmkit.heads.mixtures import HiddenLayer
from lmkit.runs.array_files import write_arrays
from lmkit.runs.checksums import checked, checked_json, parse_json

LADDER = [0.003, 0.01, 0.03, 0.1, 0.3]


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    return texts.read(study.KEPT)


@pytest.fixture
def head(tmp_path: Path):
    """Runs of one head: rate, seed and valid perplexity of each."""
    command = "lmkit train optimizer.lr=1 'sweep.axes=[a,b]' runs_dir=runs"
    text = yaml.safe_dump({"command": command})
    (tmp_path / "config.yaml").write_bytes(checked(text.encode()))

    def make(*runs: tuple[float, int, float]) -> pd.DataFrame:
        table = pd.DataFrame(runs, columns=["rate", "seed", "valid_ppl"])
        same = {"trunk_name": "trunk", "rms": None, "max_epochs": 5, "label": "GSS"}
        same |= {"module.transform_lr": 0.02, "device_kind": "cpu"}
        return table.assign(folder=str(tmp_path), **same)

    return make


def rates(head: pd.DataFrame) -> list[str]:
    return list(rules.missing_rates(head, LADDER, 141))


def test_rates_are_added_while_the_best_is_an_edge(head):
    def train(rate: float) -> str:
        return f"lmkit train runs_dir=runs optimizer.lr={rate:g}"

    assert rates(head((0.01, 141, 26.0), (0.03, 141, 25.0))) == [train(0.1)]
    assert rates(head((0.01, 141, 25.0), (0.03, 141, 26.0))) == [train(0.003)]
    inner = head((0.01, 141, 26.0), (0.03, 141, 25.0), (0.1, 141, 25.5), (0.1, 142, 1.0))
    assert rates(inner) == []
    between = head((0.01, 141, 26.0), (0.02, 141, 25.0))  # tried by hand
    assert rates(between) == [train(0.03)]


def test_fresh_seeds_have_the_rate_that_the_choosing_seed_found(head):
    rule = {"choosing": 141, "fresh": [142, 143, 144]}
    runs = head((0.01, 141, 26.0), (0.03, 141, 25.0), (0.03, 143, 99.0), (0.01, 142, 1.0))
    assert rules.missing_seeds(runs, rule) == [
        f"lmkit train optimizer.lr=1 runs_dir=runs seed={seed}" for seed in (142, 144)
    ]
    assert set(texts.at_best_rate(runs)["seed"]) == {141, 143}


def test_a_new_best_rate_counts_once_it_has_its_seeds(head):
    tried = [(0.01, 141, 26.0), (0.01, 142, 26.0), (0.01, 143, 26.0), (0.003, 141, 25.0)]
    one = (0.003, 142, 25.0)
    assert set(texts.at_best_rate(head(*tried))["rate"]) == {0.01}
    assert set(texts.at_best_rate(head(*tried, one))["rate"]) == {0.01}
    assert set(texts.at_best_rate(head(*tried, one, (0.003, 144, 25.0)))["rate"]) == {0.003}


def test_a_seed_that_a_cpu_and_a_gpu_trained_counts_once(head):
    on_cpu = head((0.01, 141, 26.0), (0.03, 141, 25.0), (0.03, 142, 25.0), (0.03, 143, 25.0))
    on_gpu = head((0.03, 143, 24.0), (0.03, 144, 24.0), (0.01, 142, 24.0))
    runs = pd.concat([on_cpu, on_gpu.assign(device_kind="cuda")], ignore_index=True)
    assert list(texts.at_best_rate(runs).index) == [1, 2, 4, 5]


def test_on_further_trunks_a_head_has_the_rate_of_the_first_and_one_fresh_seed(head):
    rule = {"choosing": 141, "fresh": [142, 143]}
    on_first = head((0.01, 141, 26.0), (0.03, 141, 25.0), (0.03, 142, 25.0))
    on_second = head((0.03, 142, 25.0), (0.01, 142, 24.0)).assign(trunk_of="awd-2")
    among = pd.concat([on_first.assign(trunk_of="awd-1"), on_second], ignore_index=True)
    found = texts.at_best_rate(among.assign(trunk_name=among["trunk_of"]))
    assert list(found.index) == [1, 2, 3]  # and not the second trunk's at 0.01
    trunks = pd.Series({"awd-2": "runs/awd-2", "awd-3": "runs/awd-3"})
    assert rules.missing_trunks(on_first, among, trunks, rule) == [
        "lmkit train optimizer.lr=1 runs_dir=runs seed=142 trunk.of=runs/awd-3"
    ]


def test_no_rate_is_added_before_the_two_of_the_sweep_were_tried(head, monkeypatch):
    sweep = {"runs": "max_epochs == 5", "heads": 1, "rates": LADDER}
    rule = {"choosing": 141, "primary": {}, "sweeps": {"s": sweep}}
    monkeypatch.setattr(rules, "rules", lambda: rule)
    monkeypatch.setattr(rules, "read", lambda folder: head((0.03, 141, 25.0)))
    assert rules.asked_for(Path("runs")) == ["lmkit train multirun_sweeps=s runs_dir=runs"]


def test_primary_contrasts_are_of_fresh_seeds_at_the_best_pair_of_rates(head, tmp_path):
    """Welch by hand: of [1, 2, 3] and [4, 5, 6] the difference is −3, SE √(1/3 + 1/3), 4 df."""
    rule = rules.rules() | {"fresh": [142, 143, 144], "primary": {"s": [["GSS", "Softmax"]]}}
    rule["sweeps"] = {"s": {"runs": "max_epochs == 5"}}
    seeds = [(0.03, seed, 25.0) for seed in (141, 142, 143, 144)]
    tuned = head(*seeds).assign(test_ppl=[9.0, 1.0, 2.0, 3.0])
    tuned["module.transform_lr"] = 2.0
    untuned = head((0.03, 141, 26.0), (0.03, 142, 20.0)).assign(test_ppl=[0.0, 0.0])
    softmax = head(*seeds).assign(test_ppl=[9.0, 4.0, 5.0, 6.0], label="Softmax")
    runs = pd.concat([tuned, untuned, softmax], ignore_index=True)
    half = students_t.ppf(0.975, 4) * np.sqrt(2 / 3)
    (row,) = contrasts(runs, rule).to_dict("records")
    assert (row["contrast"], row["sample"]) == ("GSS − Softmax", "3 seeds")
    assert (row["difference"], row["low"], row["high"]) == pytest.approx((-3, -3 - half, -3 + half))
    assert row["p_holm"] == row["p"]
    rule["sweeps"]["s"]["trunks"] = ["trunk", "another", "a third"]  # planned, and not trained yet
    assert contrasts(runs, rule)["p_holm"].item() == pytest.approx(3 * row["p"])
    rule["sweeps"]["s"]["further"] = [142, 143]  # three kinds, and no second trunk of any
    assert contrasts(runs, rule)["p_holm"].item() == pytest.approx(6 * row["p"])
    assert "text_low" not in row
    write_arrays(tmp_path / "analysis/test_nll.npz", {"nll_N": np.ones(3000, np.float16)})
    (row,) = contrasts(runs, rule).to_dict("records")
    assert (row["text_low"], row["text_high"]) == (0, 0)  # the same losses for all


def test_contrasts_over_trunks_pair_what_two_heads_have_on_the_same_trunk(head, monkeypatch):
    """By hand: differences of −3 (the mean over two seeds), −2 and −4, mean −3, SE 1/√3, 2 df.

    A further trunk has the rate that the first one chose, and no seed that chooses.
    """
    rule = rules.rules() | {"primary": {"s": [["GSS", "Softmax"]]}}
    of_sweep = {"runs": "max_epochs == 5", "trunks": ["awd-1"], "further": [142, 143]}
    rule["sweeps"] = {"s": of_sweep}
    parts = []
    for label, on_trunks in {"GSS": [[1.0, 2.0], [3.0], [4.0]],
                             "Softmax": [[4.0, 5.0], [5.0], [8.0]]}.items():  # fmt: skip
        for trunk, values in zip(("awd-1", "awd-2", "awd-3"), on_trunks, strict=True):
            seeds = [(0.03, 142 + i, 25.0) for i in range(len(values))]
            parts.append(head(*seeds).assign(test_ppl=values, trunk_name=trunk, label=label))
        parts.append(head((0.03, 141, 25.0)).assign(test_ppl=9.0, trunk_name="awd-1", label=label))
    runs = pd.concat(parts, ignore_index=True)
    seeds, trunks = contrasts(runs, rule).to_dict("records")
    assert (seeds["trunk"], seeds["sample"]) == ("awd-1", "2 seeds")
    assert (trunks["trunk"], trunks["sample"]) == ("awd", "3 trunks")
    half = students_t.ppf(0.975, 2) / np.sqrt(3)
    found = [trunks[name] for name in ("difference", "low", "high")]
    assert found == pytest.approx([-3, -3 - half, -3 + half])
    p = 2 * students_t.sf(3 * np.sqrt(3), 2)
    assert trunks["p"] == pytest.approx(p)
    assert trunks["p_holm"] == pytest.approx(2 * p)  # the smaller of two
    assert seeds["p_holm"] == pytest.approx(max(seeds["p"], 2 * p))

    # in per cent of Softmax's 4.5, 5 and 8: −66.7, −40 and −50, and of GSS's 1.5, 3 and 4
    monkeypatch.setattr("contrasts.rules", lambda: rule | {"sweeps": {"fixed_to_end": of_sweep}})
    monkeypatch.setattr("contrasts.SETTINGS", {"softmax": ("awd-1", "")})
    told = over_trunks(runs)["softmax"]
    half = students_t.ppf(0.975, 2) * np.std([-200 / 3, -40, -50], ddof=1) / np.sqrt(3)
    assert told["GSS − Softmax"] == f"−52.2 (−{52.2222 + half:.1f} … −{52.2222 - half:.1f})"
    assert told["GSS below Softmax"] == f"52.2 ({52.2222 - half:.1f} … {52.2222 + half:.1f})"
    assert told["Softmax − GSS"].startswith("122.2 (")
    assert "Softmax below GSS" not in told


def test_per_cent_are_of_the_head_that_is_named_last():
    ppl = {"label": ["Softmax", "layer", "MoS"], "test_ppl": [10.0, 5.0, 8.0]}
    percent = texts._of_pairs(pd.DataFrame(ppl))[0]["percent"]
    assert percent["layer − MoS"] == "−37.5"
    assert percent["MoS − layer"] == "60.0"
    assert percent["layer below MoS"] == "37.5"
    assert percent["Softmax − layer"] == percent["Softmax above layer"] == "100.0"
    assert "Softmax below layer" not in percent


def test_the_rules_name_sweeps_that_are_there():
    rule = rules.rules()
    assert rule["choosing"] not in rule["fresh"]
    assert rule["primary"].keys() <= rule["sweeps"].keys()
    for sweep, of in rule["sweeps"].items():
        path = study.FOLDER.parents[1] / f"multirun_sweeps/{sweep}.yaml"
        params = yaml.safe_load(path.read_text())["hydra"]["sweeper"]["params"]
        assert {float(rate) for rate in params["optimizer.lr"].split(",")} < set(of["rates"])


def test_nothing_is_asked_for_but_sweeps_where_nothing_was_trained():
    commands = rules.asked_for(study.FIRST / "runs")
    assert {word for line in commands for word in line.split() if "multirun_sweeps" in word} == {
        f"multirun_sweeps={sweep}" for sweep in (*rules.rules()["sweeps"], "study_trunks")
    }
    assert all("multirun_sweeps" in line for line in commands)


def test_its_texts_are_their_templates_with_the_kept_runs(kept):
    for path, text in study.written(kept).items():
        assert path.read_text("utf-8") == text, path


def test_a_difference_in_its_tables_is_welchs():
    """From the numbers in the runs' files."""
    ppl = {}
    for head, target in (("MoC", "MixtureOfContexts"), ("Softmax", "SingleContext")):
        ppl[head] = [
            json.loads((folder / "result.json").read_text())["metrics"]["test_ppl"]
            for folder in study.KEPT.glob("head_on_penn_subwords-*")
            if (settings := json.loads((folder / "identity.json").read_text())["settings"])
            and settings["head"]["_target_"] == "lmkit.heads.head.Head"
            and target in settings["head"]["mixture"]["_target_"]
            and settings["head"]["transform"]["_target_"].endswith("Identity")
            and settings["optimizer"]["lr"] == 0.03
            and settings["trunk"].get("rms") is None
            and settings["head"].get("decoder_rank") is None
            and settings["seed"] != rules.rules()["choosing"]
        ]
        assert len(ppl[head]) == 4
    moc, softmax = ppl["MoC"], ppl["Softmax"]
    low, high = ttest_ind(moc, softmax, equal_var=False).confidence_interval()
    told = f"{(low + high) / 2:.2f} ({low:.2f} … {high:.2f})".replace("-", "−")
    assert f"| MoC | {told}<br>valid" in study.FOLDER.joinpath("README.md").read_text("utf-8")


@pytest.mark.realdata
def test_its_runs_are_found_again_by_what_they_were_trained_with(kept, data_root, monkeypatch):
    monkeypatch.setenv("LMKIT_DATA", str(data_root))
    monkeypatch.chdir(study.FOLDER)  # trunks lie under runs/
    later = kept.query("`trunk.rms` > 0 and max_epochs == 60 or experiment.str.contains('_at')")
    known: dict = {}
    for run in map(Path, later.groupby(["experiment", "head"])["folder"].last()):
        config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
        kind = json.loads((run / "identity.json").read_text())["settings"]["device_kind"]
        found = define(config, has_gpu=kind == "cuda", known=known)
        assert found.folder.path.name == run.name


def test_ten_heads_stand_in_its_table_with_four_fresh_seeds_each(kept):
    runs = texts.fresh(texts.at_best_rate(texts.in_the_table(kept)))
    seeds = runs.groupby(["trunk_name", "label"])["seed"].nunique()
    assert len(seeds) == 3 * 10 + 8
    assert set(seeds) == {4}


def test_a_straight_transform_has_no_bend(tmp_path):
    run = pd.DataFrame({"folder": [str(tmp_path)]})
    assert texts._slope_and_bend(run) is None
    logits = np.linspace(-3, 3, 31)
    content = {
        "histogram": {"edges": logits.tolist(), "density": [1 / 6] * 30},
        "curve": {"logit": logits.tolist(), "transformed": (2 * logits + 5).tolist()},
    }
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis/logits.json").write_bytes(checked_json(content))
    assert texts._slope_and_bend(run) == pytest.approx((2, 0), abs=1e-9)


def test_a_pretrained_trunk_is_one_that_lmkit_reads(tmp_path, monkeypatch, lmkit):
    pytest.importorskip("transformers")
    import pretrained_trunks

    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("the cat sat on the mat , and slept\n" * 150)
    monkeypatch.setattr(pretrained_trunks, "VOCABULARY", 270)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(sys, "argv", ["", "llama", str(tmp_path), str(tmp_path / "llama")])
    pretrained_trunks.main()
    monkeypatch.chdir(tmp_path)
    lmkit("rank", "hf=llama", "text=valid.txt", "contexts=90")
    (measured,) = Path("pretrained/llama/analysis").glob("rank_valid*.json")
    assert parse_json(measured.read_bytes())["spectrum"]["num_contexts"] == 90


def test_the_learnt_curve_is_its_slopes_and_does_not_learn():
    curve = LearntCurve()
    assert not any(parameter.requires_grad for parameter in curve.parameters())
    ends = np.linspace(-20, 20, 401)
    heights = np.cumsum([0.0, *(0.1 * float(slope) for slope in SLOPES.split())])
    z = np.linspace(-20, 20, 999)
    expected = np.interp(z, ends, heights - heights[200])
    assert curve.double()(torch.tensor(z)).numpy() == pytest.approx(expected, abs=1e-5)


def test_mapped_softmaxes_are_mixed_over_one_map_and_have_the_layers_parameters():
    mos = MappedSoftmaxes(in_dim=32, emb_dim=32, num_experts=4, latent_dropout=0.0)
    layer = HiddenLayer(32, 32, width=83, latent_dropout=0.0)
    sizes = [sum(p.numel() for p in of.parameters()) for of in (mos, layer)]
    assert sizes == [5408, 5427]
    h = torch.randn(32)
    latent = torch.tanh(mos.latent.weight @ h + mos.latent.bias).view(4, 32)
    log_prior, contexts = mos(h.view(1, 1, 32))
    expected = latent @ mos.context.weight.T + mos.context.bias
    torch.testing.assert_close(contexts[0], expected)
    torch.testing.assert_close(log_prior[0].exp(), torch.softmax(mos.prior.weight @ h, 0))
