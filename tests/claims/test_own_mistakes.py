"""Slips in parts of a user's own are told in one line, before a training is lost by them."""

import csv
import json

import numpy as np
import pytest
import torch

import lmkit as package
from lmkit.errors.user_error import UserError
from tests.tiny import TINY, without

MODULE = """
from dataclasses import dataclass

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from pytorch_lightning.loggers.logger import DummyLogger

from lmkit.analyses.base import Analysis, Record, Recorded
from lmkit.data.corpus import Corpus, TextSplits
from lmkit.heads.mixtures import Mixture, MixtureOutput

class Half(nn.Module):
    def forward(self, logits):
        return logits.to(torch.bfloat16)

class Nothing(nn.Module):
    def forward(self, logits):
        pass

class Unmade(nn.Module):
    def __init__(self):
        self.raw = 1.0

class UnmadeMap(nn.Module):
    def __init__(self):
        self.map = nn.Linear(2, 2)

class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.dropout = nn.Parameter(torch.tensor(3.0)), nn.Dropout(0.5)

    def forward(self, logits):
        return self.dropout(self.scale * logits)

class Extra(nn.Module):
    def get_extra_state(self):
        return {"calls": 0}

    def set_extra_state(self, state):
        pass

    def forward(self, logits):
        return logits

class Double(nn.Module):
    def forward(self, logits):
        return logits.double()

class Placed(nn.Identity):
    place = 2.5

class Called(nn.Identity):
    display_name = None

class Weights(Mixture):
    def __init__(self, in_dim, emb_dim, of_logs=False, flat=False, nothing=False, last=False):
        super().__init__()
        self.nothing = nothing
        if last:
            self.register_buffer("last", None)
        self.in_dim, self.emb_dim, self.num_components = in_dim, emb_dim, 2
        self.of_logs, self.flat = of_logs, flat

    def forward(self, hidden_TBD):
        if self.nothing:
            return None
        if hasattr(self, "last"):
            self.last = hidden_TBD.mean()
        context_NKE = hidden_TBD.reshape(-1, 1, self.emb_dim).expand(-1, 2, -1)
        length_TB = hidden_TBD.norm(dim=-1)  # NaN at a context of zeros
        weight_NK = 0.5 * torch.ones(context_NKE.shape[:2]) * (length_TB / length_TB).reshape(-1, 1)
        if self.flat:
            weight_NK = weight_NK[:, :1]
        return MixtureOutput(weight_NK.log() if self.of_logs else weight_NK, context_NKE)

class Momentum(torch.optim.SGD):
    def state_dict(self):
        return super().state_dict() | {"mean": np.float64(1)}

class Saves(pl.Callback):
    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        checkpoint["mine"] = np.float64(1)

@dataclass  # so that it has no hash
class Ends(DummyLogger):
    def __post_init__(self):
        super().__init__()

    def log_hyperparams(self, params):
        params.clear()
        raise ConnectionError("no parameters")

    def finalize(self, status):
        raise OSError("the server is away")

    def save(self):
        raise OSError("no space")

    def log_graph(self, model):
        raise OSError("no graph")

    def log_metrics(self, metrics, step):
        raise ValueError("no metrics")

class Unconnected(DummyLogger):
    @property
    def experiment(self):
        raise OSError("no connection")

class Returns(DummyLogger):
    def save(self):
        return "saved"

    def finalize(self, status):
        print(self.save().upper())

class Letters(Corpus):
    def __init__(self, name, wrong=None):
        if wrong != "unmade":
            super().__init__(name)
        self.wrong = wrong

    def fingerprint(self):
        return "0" * 64

    def load(self, vocabulary=None):
        if self.wrong == "none":
            return None
        words = tuple("abcdefghij")
        if self.wrong == "numpy":
            words = tuple(np.array(words))
        train, valid, test = (np.arange(1500) % 10 for _ in range(3))
        if self.wrong == "large":
            test[7] = 10
        if self.wrong == "negative":
            valid[7] = -1
        if self.wrong == "real":
            test = test.astype(float)
        if self.wrong == "sentences":
            test = [[1, 2], [3]]
        return TextSplits(words, train, valid, test)

class Norm(Record):
    norm: float

class Copied(Analysis):
    name, record, title = "rank", Norm, "The norm"

    def measure(self, subject):
        return Recorded(Norm(norm=1.0))

class Head(Copied):
    name = "head"

class Bare(Analysis):
    name, record, title = "bare", Norm, "The norm"

    def measure(self, subject):
        return Norm(norm=1.0)

class Other(Bare):
    name = "other"

    def measure(self, subject):
        return Recorded({"norm": 1.0})

class Arrays(Analysis):
    name, record, title = "arrays", Norm, "The norm"

    def __init__(self, *, has):
        self.has = has

    def measure(self, subject):
        return Recorded(Norm(norm=1.0), {"x": np.ones(3)} if self.has else {})

class RowNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, logits):
        return self.scale * nn.functional.normalize(logits, dim=-1)
"""
TRANSFORM = "head.transform._target_=slips."
MIXTURE = "head.mixture._target_=slips.Weights +head.mixture.emb_dim=6"


@pytest.fixture(autouse=True)
def slips(tmp_path) -> None:
    (tmp_path / "slips.py").write_text(MODULE)
    (tmp_path / "corpora" / "data").mkdir(parents=True)
    corpus = "_target_: slips.Letters\nname: letters\n"
    (tmp_path / "corpora" / "data" / "letters.yaml").write_text(corpus)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (f"{TRANSFORM}Half", "head.transform=Half makes torch.bfloat16 of torch.float32 logits"),
        (f"{TRANSFORM}Nothing", "head.transform=Nothing makes NoneType of logits"),
        (f"{TRANSFORM}Unmade", "slips.Unmade must call super().__init__() first"),
        (
            f"{TRANSFORM}UnmadeMap",
            "slips.UnmadeMap or a module that it makes must call super().__init__() first",
        ),
        (f"{MIXTURE} +head.mixture.last=true", "of shape (2, 3, 6): Error(s) in loading"),
        ("+data.wrong=sentences", "Letters.load(), test: indices must be a NumPy array of int64"),
        ("+data.wrong=real", "Letters.load(), test: indices must be a NumPy array of int64"),
        (f"{TRANSFORM}Placed", "Placed.place must be a whole number, but is 2.5"),
        (f"{TRANSFORM}Called", "Called.display_name must be a text, but is None"),
        (MIXTURE, "slips.Weights gives weights that do not sum to one: are they their logs?"),
        (f"{MIXTURE} +head.mixture.flat=true", "shapes (6, 1) and (6, 2, 6) of six outputs of"),
        (f"{MIXTURE} +head.mixture.nothing=true", "must return MixtureOutput, but returns NoneT"),
        ("+data.wrong=unmade", "Letters must call super().__init__(name)"),
        ("+data.wrong=none", "must return TextSplits, not None"),
        ("+data.wrong=numpy", "must return a vocabulary of texts"),
        ("+data.wrong=negative", "Letters.load(), valid: there is a word -1, and a vocab"),
        ("+data.wrong=large", "test: there is a word 10, and a vocab"),
        ("+callbacks.mine._target_=slips.Saves", "checkpoint['mine'] holds numpy."),
        ("optimizer._target_=slips.Momentum", "checkpoint['optimizer_states'] holds numpy."),
    ],
)
def test_a_slip_is_one_line(refused, options, expected):
    line = without("data.") if "data." in options else TINY
    assert expected in refused("train", *line, *_own_corpus(options), *options.split())


def _own_corpus(options: str) -> list[str]:
    return ["--config-dir", "corpora", "data=letters"] if "data." in options else []


def test_what_is_no_slip_trains(lmkit, runs):
    for name in ("Extra", "Double"):
        lmkit("train", *TINY, f"{TRANSFORM}{name}")
    lmkit(
        "train", *without("data."), *_own_corpus("data."), "optimizer=adam", "+optimizer.amsgrad=1"
    )
    lmkit("train", *TINY, *MIXTURE.split(), "+head.mixture.of_logs=true")
    assert {run.state() for run in runs()} == {"finished"}


def test_a_logger_may_fail_at_the_end_and_change_its_own_copy(lmkit, run, capsys, tmp_path):
    kinds = ("Ends", "Unconnected", "Returns")
    loggers = [f"+logger.{name}._target_=slips.{name}" for name in kinds]
    to_csv = "{_target_: pytorch_lightning.loggers.CSVLogger, save_dir: ., name: mine}"
    lmkit("train", *TINY, *loggers, f"+logger.mine={to_csv}")
    assert run().state() == "finished"
    said = capsys.readouterr().out
    for reason in ("the server is away", "no space", "no graph", "no metrics", "no parameters"):
        assert said.count(f"Ends failed, the run continues: {reason}") == 1
    assert "Unconnected failed, the run continues: no connection" in said
    assert "\nSAVED\n" in said
    assert run().read_config()["seed"] == 141
    rows = list(csv.DictReader((tmp_path / "mine/version_0/metrics.csv").open()))
    assert float(rows[-1]["test/ppl"]) == run().read_result().metrics["test_ppl"]


def test_an_analysis_of_lmkits_name_or_without_its_record_is_refused(
    refused, lmkit, three, tmp_path
):
    configs = tmp_path / "configs" / "analyses"
    configs.mkdir(parents=True)
    head = "# @package _global_\ndefaults: [/analysis, _self_]\n_target_: slips."
    for name in ("Copied", "Head", "Bare", "Other", "Arrays"):
        has = "\nhas: true" if name == "Arrays" else ""
        (configs / f"{name.lower()}.yaml").write_text(f"{head}{name}{has}\n")
    line = ("--config-dir", "configs", f"run={three[0].path}")
    assert "Copied.name must be another: lmkit's own" in refused("copied", *line)
    assert "Head.name must be another: columns of the table" in refused("head", *line)
    assert "measure() of bare must return Recorded, but returns Norm" in refused("bare", *line)
    assert "other must record Norm, not dict" in refused("other", *line)
    lmkit("arrays", *line)
    assert (three[0].analysis / "arrays.npz").exists()
    lmkit("arrays", *line, "has=false")
    assert not (three[0].analysis / "arrays.npz").exists()


def test_a_transform_of_whole_rows_has_no_curve(lmkit, run, draw, monkeypatch):
    monkeypatch.setattr("lmkit.experiment.conclusion._draw", draw)
    lmkit("train", *TINY, f"{TRANSFORM}RowNorm")
    assert not (run().path / "transform.svg").exists()
    lmkit("logits", f"run={run().path}")
    found = json.loads((run().analysis / "logits.json").read_text())
    assert (found["slope"], list(found["curve"])) == (None, ["logit"])
    assert (run().analysis / "logits.svg").exists()


def test_a_curve_is_drawn_without_dropout(lmkit, run, draw, monkeypatch):
    monkeypatch.setattr("lmkit.experiment.conclusion._draw", draw)
    lmkit("train", *TINY, f"{TRANSFORM}Dropped")
    assert (run().path / "transform.svg").exists()


def test_describe_says_what_training_would(refused):
    line = (*without("data."), *_own_corpus("data."), "+data.wrong=none")
    assert "must return TextSplits, not None" in refused("describe", *line)
    line = (f"{TRANSFORM}Unmade", "data.num_words=40")
    assert "slips.Unmade must call super().__init__() first" in refused("describe", *line)
    accumulates = "_target_: pytorch_lightning.callbacks.GradientAccumulationScheduler"
    callback = f"+callbacks.mine={{{accumulates}, scheduling: {{0: 2}}}}"
    assert "cannot be set" in refused("describe", callback)


def test_python_takes_texts_alone_and_gives_threads_back(tmp_path):
    folder = package.train([*TINY, f"runs_dir={tmp_path}"]).folder.path
    run = package.load(folder)
    for wrong in (b"the company", None, 3, [0.5], np.zeros((2, 2), int), {1, 2}, [[1]]):
        with pytest.raises(UserError, match="a text is a string, or a list of its tokens or of"):
            run.nll(wrong)
    assert run.nll(torch.tensor([1, 2])).equal(run.nll(np.array([1, 2])))
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r"^device=cuda: "):
            package.load(folder, device="cuda")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        package.train([*TINY, f"runs_dir={tmp_path}", "max_epochs=3"])
        (folder / "identity.json").unlink()
        package.train([*TINY, f"runs_dir={tmp_path}"])
        assert (folder / "identity.json").exists()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
