"""Mistakes on a command line: one line that names the option and says what would be right."""

from collections.abc import Callable

import pytest
import pytorch_lightning as pl

from lmkit.cli.entry import CONFIGS

SMALL = ("data.train_tokens=5000", "data.valid_tokens=1000", "data.test_tokens=1000")


@pytest.fixture
def train_refused(refused, monkeypatch) -> Callable[..., str]:
    """Types `lmkit train`, which must be refused before it trains; returns its one line."""

    def must_not_train(self: pl.Trainer, *arguments: object, **options: object) -> None:
        raise AssertionError("was not refused")

    monkeypatch.delenv("LMKIT_DATA", raising=False)
    monkeypatch.setattr(pl.Trainer, "fit", must_not_train)

    def run(line: str) -> str:
        small = () if "data=" in line else SMALL
        return refused("train", *small, *line.split(" "))

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # options
        ("optimiser.lr=3", "Could not override 'optimiser.lr' (did you mean optimizer.lr?)"),
        ("transform=gss", "Could not override 'transform' (did you mean head/transform?)"),
        ("model.hidden=3", "Could not override 'model.hidden'; To append"),
        ("head/transform=gss head.transform.kk=1", "(did you mean head.transform.k?)"),
        ("+seeed=3", "there is no option seeed (did you mean seed?)"),
        ("+windows.seed=7", "windows.seed cannot be set: lmkit gives it itself"),
        ("stopping.epochs=3", "stopping.epochs is the option patience: set patience=3"),
        ("patience=3 stopping.epochs=null", "is the option patience: set patience=null"),
        ("hydra/launcher=slurm", "hydra/launcher=slurm is for sweeps: give multirun_sweeps=NAME"),
        ("+trainer.precision=tf32", "An item is already at 'trainer.precision'; Either remove +"),
        ("logger=wandb logger.wandb.entity=us", "to your config use +logger.wandb.entity=us"),
        ("optimizer={momentum:0.9}", "optimizer has no momentum; ++optimizer={...} adds it"),
        ("logger.csv=3", "Could not override 'logger.csv' (did you mean logger=csv?)"),
        ("~seed", "seed is missing: options can be set, not removed"),
        ("hydra.run.dir=out", "hydra.run.dir: lmkit writes nothing there; runs_dir=FOLDER has the"),
        ("--quiet", "there is no flag --quiet; options are written option=value"),
        ("--config-dir", "--config-dir must be followed by its value"),
        ("=3", "'=3' cannot be read as option=value"),
        ("optimizer.lr=1,2", "'optimizer.lr=1,2'; 1. To use it as a list, use key=[value1,val"),
        ("name=a,b", "quote the value: 'key=\"value1,value2\"'; 3."),  # a shell takes one pair
        ("seed 3", "'seed' cannot be read as option=value"),
        ("--multirun seed=1, 2", "'seed=1,' ends with a comma: no space follows one on a command"),
        (
            "--multirun seed=1,2 hydra.launcher.per_device=2",
            "per_device=2 has no effect beside hyd",
        ),
        (
            "--multirun seed=1,2 hydra.launcher.devices=[0,1]",
            "runs=1 at a time leave some of 2 dev",
        ),
        ("--multirun hydra.launcher.jobs=2 seed=1,2", "there is no option hydra.launcher.jobs"),
        # choices
        ("head/mixture=nonee", "(did you mean none?); head/mixture= takes contexts, doc, hidden, "),
        ("head.mixture=none", "but is none; choose one with head/mixture=NAME"),
        ("~head/mixture", "head/mixture cannot be removed: choose another with head/mixture=NAME"),
        ("callbacks=[default,spectrums]", "'callbacks/spectrums'; callbacks= takes cuda_graphs"),
        ("+experiment=toy_transformer", "second choice; choose another with experiment=toy_trans"),
        ("size=small", "size= is no choice of this command; --help lists its options"),
        ("callbacks=[default,cuda_graphs] trigger=null", "trigger=null does not exist; there are"),
        ("multirun_sweeps=no_such_sweep", "Could not find 'multirun_sweeps/no_such_sweep'; multi"),
        # values
        ("seed=null", "seed cannot be null"),
        ("optimizer.fused=flase", "optimizer.fused must be true or false, but is 'flase'"),
        ("callbacks=[]", "callbacks is not set: give it as callbacks=[default], or [default,NAME]"),
        ("callbacks=cuda_graphs", "others come beside it by 'callbacks=[default,NAME]'"),
        ("optimizer=adam +optimizer.decoupled_weight_decay=flase", "weight_decay must be true or"),
        ("+optimizer.foreach=true", "optimizer: `fused` and `foreach` cannot be `True` together"),
        ("optimizer=adam +optimizer.betas=[0.9]", "optimizer: list index out of range"),
        ("callbacks.checkpoints=false", "callbacks.checkpoints must be a section, but"),
        ("logger.wandb=false", "but is False; logger.wandb=null leaves it out"),
        ("runs_dir='~/runs'", "runs_dir=~/runs: write the folder for which ~ stands"),
        ("optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
        ("optimizer.lr=abc", "optimizer.lr must be a number, but is 'abc'"),
        ("+optimizer.momentumm=1", "(did you mean optimizer.momentum?); it takes lr, "),
        (
            "trigger=never +trigger.n=3",
            "no option trigger.n; it takes no options; ~trigger.n leaves",
        ),
        ("optimizer.lr=${seeed}", "optimizer.lr: Interpolation key 'seeed' not found"),
        (f"x=[{300 * 'a'}", "aaa' cannot be read as option=value"),  # longer than a file's name
        ("seed=abc", "seed: Value 'abc' of type 'str' could not be converted to Integer"),
        ("seed=-1", "seed must be a whole number of at least 0, but is -1"),
        ("seed=4294967296", "seed must be at most 4294967295, but is 4294967296"),
        ("trainer.deterministic=maybe", "trainer.deterministic must be true or false"),
        ("trainer.accelerator=tpu", "trainer.accelerator must be one of"),
        ("--multirun seed=1,2 hydra.job.chdir=true", "hydra.job.chdir"),
        ("--multirun seed=1,2 +hydra.job.env_set.MINE=1", "hydra.job.env_set"),
        ("trainer.log_every_n_steps=0", "trainer.log_every_n_steps must be a whole number of at"),
        ("trainer.gradient_clip_val=abc", "trainer: `gradient_clip_val` should be an int or a"),
        # which would leave no gradient
        ("trainer.gradient_clip_val=0", "trainer.gradient_clip_val (null: no limit) must be"),
        ("threads=100000", "threads must be at most 1024, but is 100000"),
        ("head/transform=[gss,plif]", "each of them: --multirun head/transform=gss,plif"),
        ("+logger.mine._target_=pytorch_lightning.loggers.CometLogger", "mine: Requirement 'comet"),
        ("logger=[]", "logger is not set: give it as logger=csv or mlflow or "),
        ("--multirun logger=csv multirun_sweeps=null", "multirun_sweeps=null does not exist"),
        ("--multirun seed=range(1,1)", "seed=range(1,1): the range is empty"),
        ("--multirun seed=range(1,2,0)", "seed=range(1,2,0): a range has an end, and steps other"),
        ("--multirun seed=range(0,inf)", "seed=range(0,inf): a range has an end, and steps other"),
        (
            "--multirun seed=1,2 +hydra.launcher.runs=2",
            "An item is already at 'hydra.launcher.runs'",
        ),
        ("--multirun hydra.sweeper.params=3", "hydra.sweeper.params must hold options and their"),
        ("--multirun hydra.sweeper.parts=3", "hydra.sweeper.parts must be a list such as"),
        ("logger.wandb.tags=a", "logger.wandb.tags must be a list such as [a,b], but is 'a'"),
        ("logger=wandb logger.wandb.tags=[2024]", "logger.wandb.tags must be a text, but is 2024"),
        ("head.trnsform={_target_:heads.Tanh}", "(did you mean head.transform?)"),
        ("nosuch={a:1}", "there is no option nosuch"),
        ("sweep=3", "sweep: Invalid type assigned: int is not a subclass of SweepOptions"),
        ("+sweep.smaple=3", "there is no option sweep.smaple (did you mean sweep.sample?)"),
        ("head/transform=softmaxes", "(did you mean head/mixture=softmaxes?)"),
        ("stopping=non_monotone", "needs a number of epochs, such as patience=5"),
        ("head.mixture.in_dim=4", "head.mixture.in_dim (4) must be equal to trunk.out_dim ("),
        ("head=mixtape head.in_dim=40", "head.in_dim (40) must be equal to trunk.out_dim (32)"),
        ("head.tie_weights=maybe", "head.tie_weights must be true or false, but is 'maybe'"),
        ("schedule.bptt=abc", "schedule.bptt (windows.bptt unless set) must be a whole number of"),
        # data
        ("data=of_trunk", "data=of_trunk is for trunk=fixed trunk.of=RUN, whose text it is"),
        ("data=penn", "data.root is not set: give the folder with penn/train.txt in it"),
        ("data=penn data.root=nowhere", "nowhere/penn/train.txt does not exist: data.root=nowhere"),
    ],
)
def test_a_mistake_is_explained(arguments, expected, train_refused):
    assert expected in train_refused(arguments)


def test_a_choice_that_does_not_exist_lists_those_that_do(train_refused):
    message = train_refused("experiment=penn_soft_max")
    assert "'experiment/penn_soft_max' (did you mean penn_softmax?); experiment= takes " in message
    for path in (CONFIGS / "experiment").glob("*.yaml"):
        assert path.stem in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("head.transform._target_=lmkit.heads.transforms.Idenity", "heads.transforms.Identity?)"),
        ("head.transform._target_=torch.tanh", "head.transform: tanh()"),
        ("head.transform._target_=math.pi", "Expected a callable target, got '3.14"),
        ("head.transform._target_=null", "must name a class as module.Class, but is None"),
        ("head.transform._target_=outside.NoModule", "nn.modules.module.Module, but makes a NoMod"),
        ("head.transform._target_=outside.Power", "head.transform.power is missing: set it with +"),
        ("head.transform._target_=outside.Power +head.transform.power=0", "transform: power is 0"),
        ("head.transform._target_=broken.Cube", "broken.Cube cannot be imported: division by zero"),
        (
            "schedule._target_=torch.optim.lr_scheduler.CosineAnnealingLR",
            "must be a lmkit.training.schedule.Schedule, but is not one",
        ),
        ("trunk._target_=lmkit.trunk.awd_lstm.LSTMLayer", "takes Trunk, but trunk gives LSTMLayer"),
    ],
)
def test_a_class_from_outside_that_does_not_fit_is_refused(
    arguments, expected, train_refused, tmp_path
):
    (tmp_path / "outside.py").write_text(OUTSIDE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    assert expected in train_refused(arguments)


OUTSIDE = """
from torch import nn

class NoModule:
    pass

class Power(nn.Module):
    def __init__(self, power):
        super().__init__()
        if power == 0:
            raise ValueError("power is 0")
"""


@pytest.mark.parametrize("line", [("--config-dir", "my_conf", "experiment=mine"), ("seed=3",)])
def test_an_error_while_training_keeps_its_traceback(lmkit, tmp_path, monkeypatch, line):
    def fit(self: pl.Trainer, *arguments: object, **options: object) -> None:
        raise ValueError("shapes do not match")

    (tmp_path / "my_conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my_conf" / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 3\n")
    monkeypatch.setattr(pl.Trainer, "fit", fit)
    with pytest.raises(ValueError, match="shapes do not match"):
        lmkit("train", *SMALL, "logger=csv", *line)
