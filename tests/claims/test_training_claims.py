"""What the manual and the configurations promise of `lmkit train`."""

import json
import re
from collections import Counter

import pytest
import torch

import lmkit as package
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.runs.metrics import MetricsFile
from tests.pages import write_shown_files
from tests.tiny import TINY, without

CALLBACKS = """
import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import Logger

class Shrink(pl.Callback):
    def __init__(self, by):
        self.by = by

    def on_train_batch_end(self, trainer, pl_module, *rest):
        for parameter in pl_module.parameters():
            parameter.data *= self.by

class Write(Logger):
    name, version = "write", 0

    def log_metrics(self, metrics, step=None):
        with open("logged.txt", "a") as file:
            file.write(" ".join(sorted(metrics)) + chr(10))

    def log_hyperparams(self, *arguments, **options):
        pass
"""


def weights(folder):
    return torch.load(folder.last, weights_only=True)["state_dict"]


def test_mixtape_gives_gates_of_their_own_to_the_most_frequent_words(lmkit, run, tmp_path):
    """In a text whose frequent words come late, so that they are not the vocabulary's first."""
    rare = [f"rare{i}" for i in range(30)]
    line = " ".join(["a b c", *rare[:1]])
    for split, lines in (("train", 300), ("valid", 40), ("test", 40)):
        text = " ".join(rare) + "\n" + f"{line}\n" * lines
        (tmp_path / f"{split}.txt").write_text(text)
    own = ("head=mixtape", "head.gate_dim=3", "head.own_share=0.15", "data=text", "data.root=.")
    lmkit("train", *without("data."), *own)
    content = torch.load(run().last, weights_only=True)
    vocabulary = content["lmkit"]["vocabulary"]
    words = Counter((tmp_path / "train.txt").read_text().replace("\n", " <eos> ").split())
    chosen = [vocabulary[i] for i in content["state_dict"]["head.own_words_R"]]
    assert len(chosen) == round(0.15 * len(vocabulary))
    assert min(words[word] for word in chosen) >= max(
        words[word] for word in vocabulary if word not in chosen
    )
    assert set(chosen) >= {"a", "b", "c", "<eos>", "rare0"}


def test_a_text_that_changes_as_a_run_trains_is_counted_in_no_result(lmkit, run, tmp_path):
    test = "a b c\n" * 40
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(test)

    def edit(epoch, metrics):
        (tmp_path / "test.txt").write_text(10 * test)

    options = [*without("data."), "data=text", "data.root=."]
    with pytest.raises(UserError, match="the files of data=text have changed since the run began"):
        package.train(options, edit)
    (tmp_path / "test.txt").write_text(test)
    lmkit("train", *options)
    assert run().read_result().metrics["test_text"]["bytes"] == len(test)


def test_what_refers_to_other_options_stays_as_it_was_typed(lmkit, run):
    lmkit("train", *TINY, "optimizer.lr=${..sgd_lr}", "head={chunk_mb: 4}")
    config = run().read_config()
    assert (config["name"], config["optimizer"]["lr"], config["head"]["chunk_mb"]) == ("toy", 10, 4)
    assert "'optimizer.lr=${..sgd_lr}'" in config["command"]


def test_callbacks_and_loggers_of_ones_own_take_part_and_callbacks_decide_the_identity(
    lmkit, three, runs, tmp_path
):
    (tmp_path / "mine.py").write_text(CALLBACKS)
    own = ("+callbacks.mine._target_=mine.Shrink", "+callbacks.mine.by=0.01")
    lmkit("train", *TINY, "seed=1", *own, "+logger.mine._target_=mine.Write")
    assert "valid/ppl" in (tmp_path / "logged.txt").read_text()
    (shrunk,) = (run for run in runs() if "callbacks" in run.read_identity().settings)
    largest = max(float(value.abs().max()) for value in weights(shrunk).values())
    assert largest < max(float(value.abs().max()) for value in weights(three[0]).values()) / 10


@pytest.mark.usefixtures("three")
def test_harmless_options_are_no_part_of_the_identity(runs, printed):
    line = ("train", *TINY, "seed=1")
    assert "trained without" not in printed(*line, "trainer.log_every_n_steps=3")
    shown = printed(*line, "+callbacks.rate._target_=pytorch_lightning.callbacks.ModelSummary")
    assert "it was trained without callbacks.rate:" in shown
    with_bar = (*without("callbacks.progress_bar"), "seed=1")
    assert "trained without" not in printed("train", *with_bar)
    printed(*line, "conclusion.contexts=50", "callbacks.checkpoints.every_minutes=1")
    printed(*line, "trunk.embedding_noise=0", "trunk.embedding_noise=-0.0")
    assert len(runs()) == 3


EARLY = (
    *TINY,
    "max_epochs=6",
    "+callbacks.early={_target_: pytorch_lightning.callbacks.EarlyStopping, "
    "monitor: valid/ppl, patience: 1, min_delta: 1000}",
)


def test_a_run_that_a_callback_ends_has_finished(lmkit, run):
    assert "training stops after epoch 2, by callback" in lmkit("train", *EARLY)
    budget = run().read_result().budget
    assert (budget.max_epochs, budget.epochs, budget.stopped) == (6, 2, "callback")
    before = run().result.read_bytes()
    for most in (6, 2, 9, "null"):
        assert "already finished" in lmkit("train", *EARLY, f"max_epochs={most}")
    assert run().result.read_bytes() == before


def test_a_callback_that_ends_a_run_in_its_last_epoch_would_end_any_longer_one(lmkit, run):
    lmkit("train", *EARLY, "max_epochs=2")
    assert run().read_result().budget.stopped == "callback"
    assert "already finished" in lmkit("train", *EARLY)


def test_any_optimizer_of_pytorch_trains(lmkit, run):
    own = ("optimizer._target_=torch.optim.AdamW", "optimizer.lr=0.01", "schedule=constant")
    lmkit("train", *without("optimizer."), *own, "trigger=never")
    assert run().read_result().metrics["valid_ppl"] < 40
    assert (
        run().read_identity().names.trigger == "no averaging"
    )  # although the experiment sets switch_epoch


def test_a_runs_name_says_its_head(refused, tmp_path, monkeypatch):
    def named(config: dict) -> None:
        raise UserError(config["name"])

    write_shown_files(tmp_path)
    monkeypatch.setattr("lmkit.cli.train.run", named)
    assert refused("train", *TINY, "head/transform=gss") == "toy_gss"
    mixture = ("head/mixture=contexts", "head.mixture.num_experts=2")
    assert refused("train", *TINY, *mixture) == "toy_contexts"
    assert refused("train", *TINY, "head.transform._target_=heads.Cube") == "toy_cube"
    own = ("head/mixture=softmaxes", "head.mixture._target_=heads.Mix")
    for line in (own, own[::-1]):
        assert refused("train", *TINY, *line) == "toy_mix"
    assert refused("train", *TINY, "head/transform=sigsoftmax", "name=mine") == "mine"


def test_a_class_edited_while_its_run_starts_is_refused(refused, tmp_path, monkeypatch):
    write_shown_files(tmp_path)
    heads = tmp_path / "heads.py"
    shown = heads.read_text()

    def edited(*arguments: object, **parts: object) -> object:
        heads.write_text(f"{shown}\n")  # after the identity, before the model
        return make(*arguments, **parts)

    monkeypatch.setattr("lmkit.experiment.objects.make", edited)
    message = refused("train", *TINY, "head.transform._target_=heads.Cube")
    assert message.startswith(f"{heads} was edited while this run started: type the command again")
    assert not list(tmp_path.glob("runs/*/config.yaml"))


def test_a_run_is_measured_by_the_code_that_trained_it(lmkit, run, refused, tmp_path):
    """A file that the user's class imports is edited: refused, or stored under another name."""
    (tmp_path / "powers.py").write_text("def cube(x):\n    return x ** 3\n")
    write_shown_files(tmp_path)
    heads = tmp_path / "heads.py"
    heads.write_text(f"import powers\n{heads.read_text()}")
    lmkit("train", *TINY, "head.transform._target_=heads.Cube")
    path = run().path
    dynamic = ("evaluate", f"run={path}", "method=dynamic", "method.batch_size=5")
    lmkit(*dynamic)
    own = sorted(each.name for each in run().analysis.glob("*.json"))
    (tmp_path / "powers.py").write_text("def cube(x):\n    return 0 * x\n")
    assert re.search(
        r"heads\.Cube has changed since the run was", refused("evaluate", f"run={path}")
    )
    with pytest.raises(UserError, match=r"heads\.Cube has changed since the run"):
        package.load(path)
    assert package.load(path, changed_code=True).result == run().read_result()
    lmkit(*dynamic, "changed_code=true")
    assert len(list(run().analysis.glob("gradients_*.pt"))) == 2  # each code has its own
    (other,) = {each.name for each in run().analysis.glob("*.json")} - set(own)
    (tmp_path / "powers.py").write_text("def cube(x):\n    return 1 * x\n")
    lmkit(*dynamic, "changed_code=true")
    assert len({each.name for each in run().analysis.glob("*.json")} - set(own)) == 2
    content = json.loads((run().analysis / other).read_bytes())
    assert "@" in other
    assert "(changed code: heads.Cube)" in content["measured_on"]["name"]
    assert not content["measured_on"]["is_own"]
    heads.unlink()
    line = ("evaluate", f"run={path}", "changed_code=true")
    assert "heads.Cube, by which the run was trained, is not found from here" in refused(*line)


def test_the_memory_of_a_run_is_that_of_its_training(three):
    """And not of its spectra on test, which differ from head to head."""
    for run in three:
        rows = MetricsFile(run.metrics).read()
        most = max(row["peak_memory_mib"] for row in rows if "peak_memory_mib" in row)
        assert run.read_result().cost["peak_memory_mib"] == pytest.approx(most)
