"""Parts of a user's own: a module, YAML files in a folder beside it, and no change to lmkit."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch

import lmkit as package
from lmkit.analyses.base import measured
from lmkit.cli.command_line import CONFIGS
from lmkit.errors.user_error import UserError
from lmkit.results.frame import head_options
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from tests.claims.conftest import Lmkit
from tests.conftest import KEPT
from tests.pages import write_shown_files
from tests.tiny import TINY, without

MODULE = """
import torch
from torch import nn

from lmkit.heads.mixtures import Mixture, MixtureOutput
from lmkit.heads.transforms import Transform
from lmkit.trunk.trunk import Trunk, TrunkOutput

class Cube(Transform):
    display_name, place = "Cubed", 50

    def __init__(self, start):
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(start))

    def forward(self, logits):
        return logits + self.raw.abs() * logits**3

class Views(Mixture):
    display_name, place = "Two views", 50

    def __init__(self, in_dim, emb_dim):
        super().__init__()
        self.in_dim, self.emb_dim, self.num_components = in_dim, emb_dim, 2
        self.view = nn.Linear(in_dim, 2 * emb_dim)

    def forward(self, hidden_TBD):
        context_NKE = self.view(hidden_TBD).reshape(-1, 2, self.emb_dim)
        return MixtureOutput(torch.full(context_NKE.shape[:2], 0.5).log(), context_NKE)

class Bigram(Trunk):
    display_name, place = "Bigram net", 50

    def __init__(self, num_words, emb_dim, out_dim):
        super().__init__(num_words, emb_dim, out_dim)
        self.layer = nn.Linear(emb_dim, out_dim)

    def initial_state(self, batch_size):
        return []

    def forward(self, tokens_TB, state):
        x_TBE = self.embedding_weight[tokens_TB]
        out_TBD = torch.tanh(self.layer(x_TBE))
        return TrunkOutput(out_TBD, out_TBD, [], [x_TBE, out_TBD])
"""
FILES = {
    "parts.py": MODULE,
    "configs/head/transform/cube.yaml": "_target_: parts.Cube\nstart: 0.02\n",
    "configs/head/mixture/views.yaml": (
        "_target_: parts.Views\nin_dim: ${trunk.out_dim}\nemb_dim: ${trunk.emb_dim}\n"
    ),
    "configs/trunk/bigram.yaml": "_target_: parts.Bigram\nemb_dim: 6\nout_dim: 6\n",
    "configs/experiment/mine.yaml": (
        "# @package _global_\ndefaults:\n- override /trunk: bigram\nname: mine\nseed: 7\n"
        "switch_epoch: 1\n"
    ),
}
OWN = ("--config-dir", "configs")
MINE = (*OWN, "experiment=mine", *without("trunk."))
HEAD = ("head/mixture=views", "head/transform=cube")


@pytest.fixture(autouse=True)
def own_parts(tmp_path: Path) -> None:
    """A folder of a user's."""
    more = {"picky.py": PICKY, "own_rules.py": RULES, "own_analyses.py": ANALYSIS}
    analysis = {"configs/analyses/longest.yaml": ANALYSIS_YAML}
    for name, content in (FILES | more | analysis).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)


def test_describe_shows_them(lmkit: Lmkit, tmp_path):
    shown = lmkit("describe", *MINE, *HEAD)
    assert "Bigram(emb_dim=6, out_dim=6)" in shown
    assert "Views(in_dim=6, emb_dim=6)" in shown
    assert "Cube(start=0.02)" in shown
    # tied words and biases, a layer of the trunk, two views, the transform
    parameters = 40 * 6 + 40 + 7 * 6 + 7 * 12 + 1
    assert re.search(rf"total\W+{parameters}\b", shown)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("three", "undrawn")
def test_a_run_and_the_report_call_them_by_their_names(lmkit, runs, tmp_path):
    lmkit("train", *MINE)
    lmkit("train", *MINE, *HEAD)
    plain, own = runs()[:2]
    names = [run.path.name.rpartition("-")[0] for run in (plain, own)]
    assert names == ["mine", "mine_views_cube"]
    names = own.read_identity().names
    assert (names.head, names.trunk) == ("Two views + Cubed", "Bigram net")
    assert names.family == "two_views_cubed"
    assert own.read_result().metrics["test_ppl"] < 40  # it has learnt: there are 40 words
    # of the run's folder alone: the report needs no code of the user's
    (tmp_path / "parts.py").unlink()
    lmkit("report", "runs=runs")
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "Two views + Cubed" in page
    assert "Bigram net" in page
    # as a baseline it is named as an option would write it
    lmkit("report", "runs=runs", "baseline=two_views_cubed", "out=other")


def test_an_edited_source_trains_anew(lmkit, runs, tmp_path):
    lmkit("train", *MINE, *HEAD)
    assert "already finished" in lmkit("train", *MINE, *HEAD)
    (tmp_path / "parts.py").write_text(MODULE.replace("logits**3", "logits**5"))
    lmkit("train", *MINE, *HEAD)
    first, second = runs()
    ppls = {run.read_result().metrics["valid_ppl"] for run in (first, second)}
    assert len(ppls) == 2
    again = package.train(["--config-dir=configs", *MINE[2:], *HEAD])
    assert len(runs()) == 2
    assert again.config["head"]["transform"]["start"] == 0.02


def test_an_edit_after_the_import_is_not_trained_by_the_earlier_code(lmkit, runs, tmp_path):
    """As in a notebook: the process has the class from before."""
    lmkit("train", *MINE, *HEAD)
    mine = ["--config-dir=configs", *MINE[2:], *HEAD]
    (tmp_path / "parts.py").write_text(MODULE.replace("logits**3", "logits**5"))
    with pytest.raises(UserError, match=r"parts\.\w+, or a .* was edited .*: start Python anew$"):
        package.train(mine)
    importlib.reload(sys.modules["parts"])  # what it imports may still be the earlier
    with pytest.raises(UserError, match="start Python anew"):
        package.train(mine)
    assert len(runs()) == 1


def test_an_edit_after_ones_own_import_is_not_trained_by_the_earlier_code(lmkit, tmp_path):
    mine = ["--config-dir=configs", *MINE[2:], *HEAD]
    sys.path.append(str(tmp_path))
    importlib.import_module("parts")  # in a notebook, to try it
    (tmp_path / "broken.py").write_text("def\n")  # which nothing imports in the end
    unused = "def unused():\n    import broken\n"
    (tmp_path / "parts.py").write_text(MODULE.replace("logits**3", "logits**5") + unused)
    with pytest.raises(UserError, match="first made or imported it: start Python anew"):
        package.train(mine)
    importlib.reload(sys.modules["parts"])
    assert package.train(mine).result.metrics["test_ppl"] > 1


def test_a_class_of_the_running_program_has_no_file_that_tells_edits(refused):
    error = refused("train", *TINY, "head.transform._target_=__main__.Cube")
    assert error.startswith("__main__.Cube is in the running program")


def test_a_head_with_a_formula_of_its_own_is_measured_by_it(lmkit, runs, refused, tmp_path):
    write_shown_files(tmp_path)
    lmkit("train", *TINY, "head._target_=smoothed.Smoothed", "+head.share=0.5")
    (run,) = map(package.load, (folder.path for folder in runs()))
    assert run.model.head.raw.item() > -3  # it learns from 0; of the default, from -4.6
    text = run.vocabulary[:20]
    log_p = run.log_probs(text).double()
    assert log_p.exp().sum(1) == pytest.approx(1, abs=1e-5)
    assert run.nll(text) == pytest.approx(-log_p.diagonal(), abs=1e-5)
    sigma = torch.linalg.svdvals(log_p)
    share = sigma / sigma.sum()
    entropy = -(share * share.log()).sum()
    assert run.rank(text).entropy_rank == pytest.approx(float(entropy.exp()), rel=1e-5)

    source, _, log_probs = (tmp_path / "smoothed.py").read_text().partition("    def log_probs")
    (tmp_path / "half.py").write_text(source)
    assert refused("train", *TINY, "head._target_=half.Smoothed") == (
        "head._target_=half.Smoothed has a formula of its own in forward, and needs it in "
        "log_probs too, from which ranks are measured"
    )
    constructor = source.partition("    def forward")[0]
    (tmp_path / "other.py").write_text(f"{constructor}    def log_probs{log_probs}")
    assert refused("train", *TINY, "head._target_=other.Smoothed") == (
        "head._target_=other.Smoothed has a formula of its own in log_probs, and needs it in "
        "forward too, by which it is trained"
    )


OTHER_MODELS = """
import torch
from torch import nn
from lmkit.heads.head import Head
from lmkit.heads.mixtape import Mixtape

class Regularised(Head):
    def nll(self, hidden_TBD, targets_TB):
        return super().nll(hidden_TBD, targets_TB) + self.decoder_weight.square().sum()

class Penalised(Head):
    def penalty(self, hidden_TBD):
        return super().penalty(hidden_TBD) + self.decoder_weight.square().sum()

class Louder(Head):
    def target_log_probs(self, logits, targets):
        return super().target_log_probs(logits, targets) + 1

    def log_probs(self, hidden_TBD):
        return super().log_probs(hidden_TBD) + 1

class Hot(Head):
    def target_log_probs(self, logits, targets):
        return super().target_log_probs(2 * logits, targets)

class Unigram(Head):
    def __init__(self, parts):
        super().__init__(parts)
        self.counts = parts.word_counts_V.float()

    def logits(self, context):
        return super().logits(context) + self.counts.log1p()

class Shaped(Head):
    def __init__(self, parts):
        super().__init__(parts)
        self.frequent = nn.Parameter(torch.zeros(int((parts.word_counts_V > 3).sum())))

class Buffered(Unigram):
    def __init__(self, parts):
        super().__init__(parts)
        del self.counts
        self.register_buffer("counts", parts.word_counts_V.float())
"""


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Regularised", r"loss of six words is .* they must be of one model"),
        ("Louder", "probabilities of a row of log_probs sum to 2.718"),
        ("Hot", "has a formula of its own in target_log_probs, and needs it in log_probs too"),
        ("Unigram", "made anew with the same state it is another model: what its constructor"),
        (
            "Shaped",
            "several.Shaped, made anew as for a run that is loaded, where word_counts_V is z",
        ),
        ("Penalised", ""),
        ("Buffered", ""),
    ],
)
def test_a_head_trains_by_what_it_is_measured_by(lmkit, runs, refused, tmp_path, name, error):
    (tmp_path / "several.py").write_text(OTHER_MODELS)
    line = ("train", *TINY, f"head._target_=several.{name}", "max_epochs=1", "switch_epoch=1")
    if error:
        assert re.search(error, refused(*line))
        return
    lmkit(*line)
    (run,) = map(package.load, (folder.path for folder in runs()))
    text = run.vocabulary[:20]
    assert run.nll(text) == pytest.approx(-run.log_probs(text).double().diagonal(), abs=1e-5)


def test_logits_of_ones_own_have_no_gradient_shares_and_exclude_no_words(lmkit, run, refused):
    lmkit("train", *TINY, "head._target_=tests.heads.test_head.Sharper")
    lmkit("gradient_bottleneck", "run=runs", "contexts=20")
    found = json.loads((run().analysis / "gradient_bottleneck.json").read_text())
    assert (found["decoder_rank"], found["share"]) == (None, None)
    assert "mixes no softmaxes of one decoder" in refused("unargmaxable", "run=runs")


OWN_CURVE = "_target_=tests.heads.test_head.Temperature"
CAPPED = "head.transform._target_=lmkit.fixed_trunk.start.AfterSoftCap"


@pytest.mark.parametrize(
    "curve",
    [
        (f"head.transform.{OWN_CURVE}",),
        (CAPPED, "+head.transform.cap=30", f"+head.transform.transform.{OWN_CURVE}"),
    ],
)
def test_words_that_a_curve_of_their_own_makes_the_likeliest_are_looked_at_too(
    lmkit, run, monkeypatch, curve
):
    def all_of(weight_VE, bias_V, predicted_V, advance):
        assert not predicted_V.any()
        return list(range(len(predicted_V)))

    lmkit("train", *TINY, *curve)
    monkeypatch.setattr("lmkit.measures.unargmaxable.unargmaxable_words", all_of)
    lmkit("unargmaxable", "run=runs")
    found = json.loads((run().analysis / "unargmaxable.json").read_text())
    assert found["freed"] == found["predicted"] > 0


def test_a_file_that_one_of_lmkits_own_hides_is_refused(lmkit, refused, tmp_path):
    mine = tmp_path / "configs/head/transform/gss.yaml"
    mine.write_text("_target_: parts.Cube\nstart: 0.02\n")
    line = ("train", *TINY, "head/transform=gss")
    expected = "configs/head/transform/gss.yaml would not be read, as lmkit has one of that name: "
    assert refused(*line, *OWN) == f"{expected}rename it"
    assert refused(*line, "hydra.searchpath=[configs]").startswith(expected)
    mine.write_bytes((CONFIGS / "head/transform/gss.yaml").read_bytes())
    lmkit(*line, *OWN, "dry_run=true", "multirun_sweeps=smoke")


PICKY = """
import torch
from torch import nn
from pytorch_lightning import Callback

from lmkit.heads.head import Head

class Valued(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.full((1,), 1.5).item()

    def forward(self, logits):
        return logits * self.scale

class Frequent(Head):
    def __init__(self, parts, first=20, loss="nce"):
        super().__init__(parts)
        if first >= len(self.decoder_bias):
            raise ValueError("more words are needed")
        self.loss = loss

class Halved(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        for group in trainer.optimizers[0].param_groups:
            group["lr"] /= 2
"""


def test_a_sweep_takes_what_a_run_takes(lmkit, runs, refused):
    valued = (*TINY, "head.transform._target_=picky.Valued")
    frequent = (*TINY, "head._target_=picky.Frequent", "+head.loss=plain")
    for head in (valued, frequent):
        lmkit("train", *head, "seed=1,2", "--multirun")
    assert len(runs()) == 4
    options = {package.load(run.path).model.head.__dict__.get("loss") for run in runs()}
    assert options == {None, "plain"}
    table = package.results("runs")
    assert "head.loss" in head_options(table)
    assert "head.loss" not in head_options(table[table["head._target_"].str.startswith("lmkit.")])
    assert refused("describe", *valued) == (
        "the model cannot be made on PyTorch's meta device: Tensor.item() cannot be called on meta "
        "tensors"
    )
    assert "no option head.loss" in refused("train", *TINY, "+head.loss=nce")


def test_a_rate_that_a_callback_changes_is_that_of_the_step(lmkit, runs):
    lmkit("train", *TINY)
    lmkit("train", *TINY, "name=halved", "+callbacks.halved._target_=picky.Halved")

    def rates(run: RunFolder) -> list[float]:
        """At the first step of each epoch, whose windows have 17 and 10 of 20 tokens."""
        return [row["train/lr"] for row in MetricsFile(run.metrics).read() if "train/lr" in row]

    halved, plain = map(rates, runs())
    assert plain == [pytest.approx(5 * 17 / 20), pytest.approx(5 * 10 / 20)]
    assert halved == [plain[0], plain[1] / 2]


RULES = """
import pytorch_lightning as pl
from pytorch_lightning.loggers import CSVLogger

from lmkit.data.corpus import TextCorpus
from lmkit.training.callbacks.stopping import Stopping

class Gain(Stopping):
    def __init__(self, min_delta):
        super().__init__()
        self.min_delta = min_delta

    @property
    def exhausted(self):
        return len(self.history) > 1 and self.history[-2] - self.history[-1] < self.min_delta

class Bare(Stopping):
    exhausted = False

    def __init__(self):
        pass

class Lower(TextCorpus):
    def __init__(self, *arguments, lower=True, **options):
        super().__init__(*arguments, **options)
        self.lower = lower

    def load(self, vocabulary=None):
        splits = super().load(vocabulary)
        splits.train[:] //= 1 + self.lower
        return splits

class Counting(pl.Callback):
    def state_dict(self):
        return {"count": 1}
"""


def test_an_own_rules_options_are_of_the_runs_identity(lmkit, runs, refused):
    line = ("train", *without("max_epochs="), "max_epochs=4", "stopping._target_=own_rules.Gain")
    for least in ("1000", "-1000"):
        lmkit(*line, f"stopping.min_delta={least}")
    assert sorted(run.read_result().budget.epochs for run in runs()) == [2, 4]
    assert refused("train", *TINY, "stopping._target_=own_rules.Bare", "~stopping.min_delta") == (
        "stopping._target_=own_rules.Bare must call super().__init__()"
    )


def test_an_own_corpuss_options_are_of_the_runs_identity(lmkit, runs, tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b c d a b\n" * 200)
    line = ("train", *without("data."), "data=text", "data.root=.", "data._target_=own_rules.Lower")
    for lower in ("true", "false"):
        lmkit(*line, f"+data.lower={lower}")
    lmkit(*line)  # by default
    assert len({run.read_result().metrics["test_ppl"] for run in runs()}) == len(runs()) == 2


def test_two_callbacks_that_save_under_one_name_are_refused(refused):
    both = [f"+callbacks.{name}._target_=own_rules.Counting" for name in ("one", "two")]
    assert refused("train", *TINY, *both) == (
        "callbacks: Found more than one stateful callback of type `Counting`: give each a "
        "state_key of its own"
    )


def test_a_mixture_that_does_not_set_its_sizes_is_one_line(refused, tmp_path):
    sizes = "self.in_dim, self.emb_dim, self.num_components = in_dim, emb_dim, 2"
    assert sizes in MODULE
    (tmp_path / "parts.py").write_text(MODULE.replace(sizes, "self.emb_dim = emb_dim"))
    assert refused("train", *MINE, *HEAD) == (
        "head.mixture._target_=parts.Views must set in_dim, num_components, which it lacks"
    )


ANALYSIS = """
from lmkit.analyses.base import Analysis, Record, Recorded
from pydantic import Field

class Words(Record):
    words: int = Field(title="long words")
    parameters: int = Field(title="parameters of the model")

class Longest(Analysis):
    name, record, title = "longest", Words, "How long the words are"

    def __init__(self, *, letters):
        self.letters = letters

    def measure(self, subject):
        _, data = subject.language_model
        words = [word for word in data.corpus.vocabulary if len(word) >= self.letters]
        size = sum(p.numel() for p in subject.model.parameters())
        return Recorded(Words(words=len(words), parameters=size))
"""
ANALYSIS_YAML = """\
# @package _global_
# configs/analyses/longest.yaml
# Counts the long words that a run knows.
defaults:
  - /analysis
  - _self_
_target_: own_analyses.Longest
letters: 2 # of a long word
hydra:
  help:
    app_name: lmkit longest
    header: lmkit longest run=RUNS counts long words.
"""


@pytest.mark.slow
@pytest.mark.usefixtures("three", "undrawn")
def test_an_analysis_is_a_command_and_a_section_of_the_report(lmkit, runs, tmp_path):
    assert "longest" in lmkit("--help", *OWN)
    shown = lmkit("longest", "--help", *OWN)
    assert shown.startswith("lmkit longest run=RUNS counts long words.")
    assert "letters: 2" in shown

    assert "long words" in lmkit("longest", *OWN, "run=runs", "letters=3")
    for run in runs():
        content = json.loads((run.analysis / "longest.json").read_text())
        assert (content["kind"], content["checkpoint"]) == ("longest", "best")
        assert content["words"] > 0

    lmkit("report", *OWN, "runs=runs")
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "How long the words are" in page
    assert "parameters of the model" in page
    assert "left out: analysis/longest.json: of no analysis known" in lmkit("report", "runs=runs")
    # one whose class cannot be had is named and ends no report
    (tmp_path / "own_analyses.py").write_text("1 / 0\n")
    shown = lmkit("report", *OWN, "runs=runs")
    assert "left out: analyses/longest: its analysis cannot be loaded" in shown
    assert "How long the words are" not in (tmp_path / "report" / "index.html").read_text("utf-8")
    unnamed = ANALYSIS.replace(
        'name, record, title = "longest", Words,', "record, caption = Words,"
    )
    (tmp_path / "own_analyses.py").write_text(unnamed)
    assert "own_analyses.Longest does not set name, title" in lmkit("report", *OWN, "runs=runs")


def test_an_analysis_that_is_called_like_a_module_or_a_command_replaces_neither(lmkit):
    for name in ("words", "runs"):
        Path(f"configs/analyses/{name}.yaml").write_text(ANALYSIS_YAML)
    assert lmkit("words", "--help", *OWN).startswith("lmkit longest run=RUNS counts long words.")
    shown = lmkit("--help", *OWN)
    assert re.search(r"^  words +Counts the long words", shown, re.MULTILINE)
    assert re.search(r"^  runs +Shows runs, finished or not", shown, re.MULTILINE)


def test_what_an_analysis_cannot_take_is_one_line(refused, tmp_path):
    assert "'leters' (did you mean letters?)" in refused("longest", *OWN, f"run={KEPT}", "leters=3")
    configs = tmp_path / "configs" / "analyses" / "longest.yaml"
    configs.write_text(ANALYSIS_YAML.replace("own_analyses.Longest", "types.SimpleNamespace"))
    expected = "_target_=types.SimpleNamespace must be a lmkit.analyses.base.Analysis, but makes"
    assert expected in refused("longest", *OWN, f"run={KEPT}")


ODD = """
import numpy as np
from lmkit.analyses.base import Analysis, Record, Recorded

class Pairs(Record):
    pair: tuple[int, float]
    by_size: dict[int, float]

class Averaged(Pairs):
    averaged: int

class Longest(Analysis):
    name, record, title = "longest", Pairs, "Odd values"

    def __init__(self, *, letters):
        self.letters = letters

    def measure(self, subject):
        if self.letters == 7:
            return Recorded(Averaged(pair=(1, 1), by_size={}, averaged=1))
        texts = np.array(["a"], dtype=object if self.letters == 8 else str)
        ratio = 1 / 3 if self.letters != 9 else float("nan")
        return Recorded(Pairs(pair=(1, ratio), by_size={2: 0.5}), {"texts": texts[: self.letters]})

    def variant(self, record):
        return "a/b" if self.letters == 6 else ""
"""


def test_a_measurement_is_stored_whole_and_as_it_is_read_or_not_at_all(
    lmkit, three, refused, tmp_path
):
    (tmp_path / "own_analyses.py").write_text(ODD)
    run = three[0]
    line = ("longest", *OWN, f"run={run.path}")
    lmkit(*line, "letters=1")
    before = {path.name: path.read_bytes() for path in run.analysis.iterdir()}
    for letters, expected in {
        6: "variant() of longest gives 'a/b', part of no file's name",
        7: "Averaged.averaged needs another name: each file has one of that name",
        8: "longest.npz is not written: the array texts holds objects of Python",
        9: "longest.json is not written: a number in it is not finite",
    }.items():
        assert expected in refused(*line, f"letters={letters}")
    assert {path.name: path.read_bytes() for path in run.analysis.iterdir()} == before
    ((_, stored),) = measured(run, importlib.import_module("own_analyses").Longest, "mine", {})
    assert (stored.record.pair, stored.record.by_size) == ((1, 1 / 3), {2: 0.5})
    assert stored.arrays["texts"].tolist() == ["a"]
