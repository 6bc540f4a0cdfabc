"""What bad input gets: one line that names the option or the file and says what would be right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lmkit.cli import describe, finetune, train
from lmkit.cli import main as lmkit
from lmkit.cli.analysis import run_analysis
from lmkit.cli.entry import CONFIGS, compose, plain_config

KEPT = Path(__file__).parents[2] / "docs/study/first/runs"
QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
SMALL = ("data.train_tokens=5000", "data.valid_tokens=1000", "data.test_tokens=1000")

evaluate = partial(run_analysis, "evaluate")


@pytest.fixture
def refused(monkeypatch, tmp_path, capsys):
    """Runs an entry point in this process; returns its one line on standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LMKIT_DATA", raising=False)
    monkeypatch.setattr(pl.Trainer, "fit", _must_not_train)

    def run(*arguments: str, command=train.main) -> str:
        on_toy = command == train.main and not any(a.startswith("data=") for a in arguments)
        small = SMALL if on_toy else ()
        monkeypatch.setattr(sys, "argv", ["lmkit", *QUIET, *small, *arguments])
        with redirect_stderr(StringIO()) as stderr, pytest.raises(SystemExit) as exit_:
            command()
        status = exit_.value.code  # or the line that Python then prints
        assert status, "exit status 0"
        message = status if isinstance(status, str) else stderr.getvalue().removesuffix("\n")
        assert message.startswith("error: ")
        assert "\n" not in message
        assert capsys.readouterr() == ("", "")
        return message.removeprefix("error: ")

    return run


@pytest.fixture
def lmkit_raising(monkeypatch, tmp_path):
    """Runs `lmkit train` with an error while it trains."""
    monkeypatch.chdir(tmp_path)

    def run(error: Exception, *arguments: str) -> None:
        def fit(self, *arguments, **options):
            raise error

        monkeypatch.setattr(pl.Trainer, "fit", fit)
        monkeypatch.setattr(sys, "argv", ["lmkit", *QUIET, *SMALL, "logger=csv", *arguments])
        train.main()

    return run


def _must_not_train(self, *arguments, **options):
    raise AssertionError("was not refused")


def command_line(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(CONFIGS.parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["optimizer.lrr=1"],
            "'optimizer.lrr' (did you mean optimizer.lr?); To append to your config",
        ),
        (["experiment=penn_moss"], "did you mean penn_mos?"),
        (["lr 20"], "'lr 20' cannot be read as option=value"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_a_failure(arguments, expected, tmp_path):
    done = command_line("-m", "lmkit", "train", *arguments, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "describe", "evaluate", "finetune"])
def test_help_is_quick_and_names_the_choices(command, tmp_path):
    program = (
        "import sys, lmkit.cli.main as lmkit\n"
        f"sys.argv = ['lmkit', '{command}', '--help']\n"
        "slow = {'torch', 'scipy.stats', 'wandb', 'pandas'}\n"
        "try:\n    lmkit.main()\n"
        "finally:\n    assert not sys.modules.keys() & slow\n"
    )
    done = command_line("-c", program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"lmkit {command} ")
    lines = done.stdout.splitlines()
    assert len(lines) < 220
    assert not any(re.match("(conf|launches|runs)[/:]", line) for line in lines)


def test_help_lists_every_group_that_train_can_use(tmp_path):
    shown = command_line("-m", "lmkit", "train", "--help", folder=tmp_path).stdout
    groups = shown.partition("== Groups")[2].partition("== Options")[0].replace("\n  ", " ")
    listed = dict(line.split(": ", 1) for line in groups.splitlines()[1:] if line)
    folders = {str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()}
    of_others = {"analyses", "finetuning", "method", "reproduce", "size", "studies"}
    usable = {folder for folder in folders - of_others if not folder.startswith("hydra")}
    assert listed.keys() == usable | {"hydra/launcher"}
    assert "penn_mos" in listed["experiment"].split(", ")


OWN_CUBE = "# The cube.\n_target_: outside.Power\npower: 3 # of the logits\n"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["experiment=wt2_gss", "callbacks=[default,gradient_bottleneck]"]),
        ("train", ["--config-dir", "mine", "head/transform=cube"]),
        ("train", ["--multirun", "seed=1,2"]),
        ("describe", ["trunk=transformer", "optimizer=adamw", "schedule=cosine"]),
        ("finetune", []),
        ("evaluate", ["method=dynamic"]),
        ("rank", []),
        ("compare", []),
        ("report", []),
    ],
)
def test_help_says_what_each_option_means(command, arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine" / "head" / "transform").mkdir(parents=True)
    (tmp_path / "mine" / "head" / "transform" / "cube.yaml").write_text(OWN_CUBE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lmkit", command, *arguments, "--help"])
    lmkit.main()
    options = capsys.readouterr().out.partition("== Options")[2].splitlines()[1:]
    assert len(options) >= 4
    assert max(map(len, options)) <= 100
    unexplained = []
    for line, before in zip(options, ["", *options], strict=False):
        key = re.fullmatch(r" *'?([\w/]+)'?:( .*)?", line)
        if key and "#" not in line and not before.strip().startswith("#"):
            unexplained.append(key[1])
    plain = {"_target_", "name", "title", "short_title", "valid_tokens", "test_tokens", "runs_dir"}
    plain |= {"save_dir", "id"}
    assert set(unexplained) <= plain | {"epoch", "decay_grid", "gradient_bottleneck"}
    if "callbacks:" in options:
        above = [line for line in options[: options.index("callbacks:")] if line[0] == "#"]
        assert above[-3].startswith("# What happens around training.")
    if "mine" in arguments:
        assert "  # The cube.\n  transform:\n" in "\n".join(options)
        assert "    power: 3 # of the logits" in options


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # options
        (
            "optimiser.lr=3",
            "Could not override 'optimiser.lr' (did you mean optimizer.lr?); To append",
        ),
        ("run.dir=x", "Could not override 'run.dir' (did you mean runs_dir?)"),
        ("transform=gss", "Could not override 'transform' (did you mean head/transform?)"),
        ("model.hidden=3", "Could not override 'model.hidden'; To append"),
        ("head/transform=gss head.transform.kk=1", "(did you mean head.transform.k?)"),
        ("+seeed=3", "there is no option seeed (did you mean seed?)"),
        ("+windows.bppt=3", "there is no option windows.bppt (did you mean windows.bptt?); it"),
        (
            "+trainer.precision=tf32",
            "An item is already at 'trainer.precision'; Either remove + pref",
        ),
        ("~seed", "seed is missing: options can be set, not removed"),
        ("--quiet", "there is no flag --quiet; options are written option=value"),
        ("--config-dir", "--config-dir must be followed by its value"),
        ("=3", "'=3' cannot be read as option=value"),
        ("optimizer.lr=[1", "'optimizer.lr=[1' cannot be read as option=value"),
        ("optimizer.lr=1,2", "'optimizer.lr=1,2'; 1. To use it as a list, use key=[value1,val"),
        # choices
        ("head/mixture=nonee", "(did you mean none?); head/mixture= takes contexts, doc, hidden, "),
        ("head/mixtures=none", "Could not override 'head/mixtures' (did you mean head/mixture?"),
        ("head.mixture=none", "but is none; choose one with head/mixture=NAME"),
        ("~head/mixture", "but is None; choose one with head/mixture=NAME"),
        (
            "callbacks=[default,spectrums]",
            "'callbacks/spectrums'; callbacks= takes cuda_graphs, def",
        ),
        ("trigger=200", "trigger=200 does not exist; there are at_epoch, "),
        ("callbacks=[default,cuda_graphs] trigger=null", "trigger=null does not exist; there are"),
        ("multirun_sweeps=no_such_sweep", "Could not find 'multirun_sweeps/no_such_sweep'; multi"),
        # values
        ("optimizer.lr=0", "optimizer.lr must be greater than 0, but is 0"),
        ("optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
        ("optimizer.lr=abc", "optimizer.lr must be a number, but is 'abc'"),
        ("optimizer.lr=[1,2]", "optimizer.lr must be a number, but is [1, 2]"),
        ("+optimizer.momentumm=1", "(did you mean optimizer.momentum?); it takes lr, "),
        ("objective.sum=1", "Could not override 'objective.sum'; To append to your config use +"),
        ("optimizer.lr=nan", "optimizer.lr must be a finite number, but is nan"),
        ("optimizer.lr=${seeed}", "optimizer.lr: Interpolation key 'seeed' not found"),
        ("seed=abc", "seed: Value 'abc' of type 'str' could not be converted to Integer"),
        ("seed=", "seed: Value '' of type 'str' could not be converted to Integer"),
        ("seed=1.5", "seed: Value '1.5' of type 'float' could not be converted to Integer"),
        ("dry_run=maybe", "dry_run: Value 'maybe' is not a valid bool"),
        ("seed=-1", "seed must be a whole number of at least 0, but is -1"),
        ("seed=4294967296", "seed must be at most 4294967295, but is 4294967296"),
        ("trainer.deterministic=maybe", "trainer.deterministic must be true or false"),
        ("trainer.log_every_n_steps=0", "trainer.log_every_n_steps must be a whole number of at"),
        ("trainer.gradient_clip_val=abc", "trainer: `gradient_clip_val` should be an int or a"),
        ("trainer.gradient_clip_val=-1", "trainer.gradient_clip_val must be at least 0, but is -1"),
        ("threads=100000", "threads must be at most 1024, but is 100000"),
        ("optimizer._target_=torch.optim.Adm", "has no Adm (did you mean torch.optim.Adam?)"),
        (
            "head/transform=[gss,plif]",
            "head/transform=[gss,plif] names several, but a head has one; to train each of "
            "them: --multirun head/transform=gss,plif",
        ),
        (
            "+logger.mine._target_=pytorch_lightning.loggers.CometLogger",
            "logger.mine: Requirement 'comet-ml",
        ),
        ("+trainer.max_step=3", "there is no option trainer.max_step"),
        ("+trainer.max_steps=3", "trainer.max_steps cannot be set: the budget is the option max"),
        ("logger=wandb +logger.wandb.foo=3", "there is no option logger.wandb.foo; it takes "),
        ("logger=[]", "logger is not set: give it as logger=csv or mlflow or "),
        ("--multirun logger=csv multirun_sweeps=null", "multirun_sweeps=null does not exist"),
        ("--multirun hydra.sweeper.params=3", "hydra.sweeper.params must hold options and their"),
        ("--multirun hydra.sweeper.parts=3", "hydra.sweeper.parts must be a list such as"),
        ("logger.wandb.tags=a", "logger.wandb.tags must be a list such as [a,b], but is 'a'"),
        ("sweep=3", "sweep: Invalid type assigned: int is not a subclass of SweepOptions"),
        ("+sweep.smaple=3", "there is no option sweep.smaple (did you mean sweep.sample?)"),
        ("trunk.input_dropout=1", "trunk.input_dropout must be at least 0 and less than 1"),
        ("trunk.weight_dropout=-0.1", "trunk.weight_dropout must be at least 0 and less than 1"),
        ("trunk.out_dim=40", "head.tie_weights=true needs trunk.out_dim (40) equal to"),
        ("head.tie_weights=maybe", "head.tie_weights must be true or false, but is 'maybe'"),
        ("head/transform=gss head.transform.k=0", "head.transform.k must be greater than 0"),
        ("head/transform=gss head.transform.k=-2", "head.transform.k must be greater than 0"),
        ("trigger.epoch=0", "trigger.epoch must be a whole number of at least 1, but is 0"),
        ("schedule.bptt=abc", "schedule.bptt (windows.bptt unless set) must be a whole number of"),
        ("windows.bptt=abc", "windows.bptt must be a whole number of at least 5, but is 'abc'"),
        ("windows.batch_size=10000000", "choose a smaller windows.batch_size"),
        # data
        ("data=penn", "data.root is not set: give the folder with penn/train.txt in it"),
        ("data=penn data.root=nowhere", "nowhere/penn/train.txt does not exist: data.root=nowhere"),
    ],
)
def test_bad_input_is_refused(arguments, expected, refused):
    assert expected in refused(*arguments.split(" "))


def test_an_error_while_training_keeps_its_traceback(lmkit_raising, tmp_path):
    (tmp_path / "my_conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my_conf" / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 3\n")
    own = ("--config-dir", "my_conf", "experiment=mine")
    for line in (own, ("callbacks=[default,gradient_bottleneck]",)):
        with pytest.raises(ValueError, match="shapes do not match"):
            lmkit_raising(ValueError("shapes do not match"), *line)


def test_a_choice_that_does_not_exist_lists_those_that_do(refused):
    message = refused("experiment=penn_soft_max")
    assert "'experiment/penn_soft_max' (did you mean penn_softmax?); experiment= takes " in message
    for path in (CONFIGS / "experiment").glob("*.yaml"):
        assert path.stem in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "valid.txt is empty; it must hold at least one line of text"),
        (b" \n", "valid.txt is empty"),
        (b"a word\n caf\xe9\n", "valid.txt, line 2: the byte 0xe9 is not UTF-8 text"),
        (None, "valid.txt does not exist: data.root="),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(content, expected, refused, tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a few words\n" * 100)
    if content is None:
        (tmp_path / "valid.txt").unlink()
    else:
        (tmp_path / "valid.txt").write_bytes(content)
    assert expected in refused("data=text", f"data.root={tmp_path}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("head.transform._target_=no.such.Head", "head.transform._target_=no.such.Head cannot be"),
        (
            "head.transform._target_=lmkit.heads.transforms.Idenity",
            "lmkit.heads.transforms has no Idenity (did you mean lmkit.heads.transforms.Identity?)",
        ),
        ("head.transform._target_=math.pi", "Expected a callable target, got '3.14"),
        ("head.transform._target_=null", "must name a class as module.Class, but is None"),
        ("head.transform._target_=outside.NoModule", "nn.modules.module.Module, but makes a NoMod"),
        ("head.transform._target_=outside.Power", "head.transform.power is missing: set it with +"),
        (
            "head.transform._target_=outside.Power +head.transform.powr=2",
            "head.transform.powr (did you mean head.transform.power?); it takes power",
        ),
        (
            "head/transform=gss head.transform._target_=outside.Cube",
            "there is no option head.transform.c; it takes no options",
        ),
        (
            "head.transform._target_=outside.Power +head.transform.power=0",
            "head.transform: power is 0",
        ),
        ("head.transform._target_=broken.Cube", "broken.Cube cannot be imported: division by zero"),
        (
            "trunk._target_=lmkit.trunk.awd_lstm.LSTMLayer",
            "takes Trunk, but trunk gives LSTMLayer",
        ),
    ],
)
def test_a_class_from_outside_that_does_not_fit_is_refused(
    arguments, expected, refused, tmp_path, monkeypatch
):
    (tmp_path / "outside.py").write_text(OUTSIDE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert expected in refused(*arguments.split(" "))
    sys.modules.pop("outside", None)


OUTSIDE = """
from torch import nn

class NoModule:
    pass

class Cube(nn.Module):
    def forward(self, logits):
        return logits**3

class Power(nn.Module):
    def __init__(self, power):
        super().__init__()
        if power == 0:
            raise ValueError("power is 0")
"""


def test_a_defect_of_a_task_keeps_its_traceback(monkeypatch, tmp_path):
    def defect(config):
        raise ZeroDivisionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lmkit.cli.train.run", defect)
    monkeypatch.setattr(sys, "argv", ["lmkit", *QUIET])
    with pytest.raises(ZeroDivisionError):
        train.main()


def test_describe_shows_sizes_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["lmkit", *SMALL, "head/transform=plif_frozen", "data.num_words=50"]
    )
    describe.main()
    shown = capsys.readouterr().out
    assert "toy: 50 words, 5,000 / 1,000 / 1,000 tokens" in shown
    assert "PiecewiseLinear(knots=100000, limit=20.0, frozen=True)" in shown
    rows = [line.replace("│", " ").split() for line in shown.splitlines()]
    # 50 x 32 + 50, 4 x 64 x (32 + 64 + 2), 4 x 32 x (64 + 32 + 2); 10^5 slopes frozen
    total = ["total", "39,282", "139,282", "557,128"]
    assert next(row for row in rows if row[:1] == ["total"])[:4] == total
    said = " ".join(shown.split())
    assert re.search(r"time: about [\w. ]+ per epoch, [\w. ]+ for 24 epochs, without transf", said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "run is not set: give it as run=VALUE"),
        ("run=nowhere", "run=nowhere selects no run: it is not a folder"),
        ("run=nowhere lr=0", "lr must be greater than 0, but is 0"),
        ("run=nowhere n=0", "n must be a whole number of at least 1, but is 0"),
        ("run=nowhere max_epochs=x", "max_epochs: Value 'x' of type 'str' could not be converted"),
        ("run=nowhere optimizer.lr=1", "'optimizer.lr' (did you mean lr?)"),
        ("run=nowhere patience=3", "Could not override 'patience'"),
    ],
)
def test_finetune_refuses_bad_input(arguments, expected, refused):
    assert expected in refused(*arguments.split(), command=finetune.main)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "run=nowhere",
            "run=nowhere selects no run: it is not a folder, a pattern that matches one",
        ),
        ("run=nowhere method=cach", "'method/cach' (did you mean cache?); method= takes cache, "),
        ("run=nowhere method.window=3", "'method.window' (method=cache or cache_wt2 has it)"),
        ("run=nowhere method=cache method.thetta=3", "(did you mean method.theta?)"),
        ("run=KEPT method=cache method.weight=1", "method.weight must be at least 0 and less"),
        ("run=KEPT method=cache method.theta_grid=[0]", "method.theta must be greater than 0"),
        ("run=KEPT method=dynamic method.epsilon=0", "method.epsilon must be greater than 0"),
        ("run=KEPT search=true", "search=true: method=static has nothing to search; choose"),
        ("run=KEPT search_tokens=0", "search_tokens must be a whole number of at least 1"),
        ("run=KEPT split=dev", "split must be one of train, valid, test, but is 'dev'"),
    ],
)
def test_evaluate_refuses_bad_input(arguments, expected, refused):
    arguments = arguments.replace("KEPT", str(KEPT))
    assert expected in refused(*arguments.split(), command=evaluate)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ((), "toy"),
        (("data=penn",), "penn"),
        (("data=text", "data.name=mine"), "mine"),
        (("experiment=penn_mos", "data=wikitext-2"), "penn_mos"),
    ],
)
def test_a_run_without_an_experiment_is_named_after_its_corpus(overrides, name):
    assert plain_config(compose("train", overrides))["name"] == name
