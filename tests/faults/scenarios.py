"""Runs that take about a second each: any head, trunk, precision, trigger and command."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

QUIET = (
    *("threads=1", "logger=csv", "callbacks.progress_bar=null", "trainer.accelerator=cpu"),
    *("conclusion.contexts=20", "callbacks.spectrum.contexts=10", "trainer.log_every_n_steps=1"),
)
SMALL = (
    *QUIET,
    *("trunk.emb_dim=6", "trunk.hidden_dim=6", "trunk.out_dim=6", "trunk.num_layers=1"),
)
TOY = (
    *("data.num_words=30", "data.train_tokens=260", "data.valid_tokens=60", "data.test_tokens=40"),
    *("windows.batch_size=4", "windows.valid_batch_size=2", "windows.bptt=20"),
    *("windows.max_length_delta=5", "optimizer.lr=5"),
)
DIALOGUE = (
    *("experiment=dialogue_softmax", "data=dialogue", "data.num_words=12"),
    *("windows.batch_size=2", "windows.eval_batch_size=2"),
)
PLAIN = ("train", *SMALL, *TOY, "trigger=at_epoch", "switch_epoch=1", "max_epochs=2")
MIXTURES = (
    (),
    ("head/mixture=contexts", "head.mixture.num_experts=2"),
    ("head/mixture=softmaxes", "head.mixture.num_experts=2"),
)
TRANSFORMS = (
    *((), ("head/transform=sigsoftmax",), ("head/transform=gss",)),
    ("head/transform=plif", "head.transform.knots=40"),
    ("head/transform=plif_frozen", "head.transform.knots=40"),
    ("head/transform=monotone_mlp", "head.transform.units=3"),
)
OTHER_HEADS = (
    ("head/mixture=doc", "head.mixture.experts=[0,2]"),
    ("head=mixtape", "head.num_experts=2", "head.gate_dim=3"),
)
TRANSFORMER = ("trunk=transformer", "trunk.num_heads=2", "trunk.ffn_dim=8", "trunk.memory=9")
TRANSFORMER += ("optimizer=sgd", "schedule=window_length")
TRUNKS = ((), (), TRANSFORMER)
PRECISIONS = ((), (), ("trainer.precision=bf16-mixed",))
TRIGGERS = (
    *(("trigger=at_epoch", "switch_epoch=1"),) * 2,
    ("trigger=non_monotone", "trigger.n=1"),
    ("trigger=never",),
)
# after every batch, mostly: a run that goes on within an epoch has the most state to lose
EVERY_BATCH = ("callbacks.checkpoints.every_minutes=1e-6",)
SAVING = ((), EVERY_BATCH, EVERY_BATCH)
EPOCHS = (2, 3, 3)  # with averages from the second or third on
WINDOWS = (
    ("windows.batch_size=4", "windows.valid_batch_size=2", "windows.bptt=20", "optimizer.lr=5"),
    ("windows=contexts", "windows.batch_size=40", "optimizer=adamw", "schedule=cosine"),
)


class Scenario(NamedTuple):
    """What is run, and where its files are."""

    line: tuple[str, ...]  # after `lmkit`
    before: tuple[str, ...] = ()  # the line of the run that it starts from, without folders
    takes: str = "run"  # the option that names that run

    @property
    def is_sweep(self) -> bool:
        return "--multirun" in self.line

    @property
    def kind(self) -> str:
        named = {"--multirun": "sweep", "data=dialogue": "dialogue", "trunk=fixed": "head alone"}
        return next((named[word] for word in named if word in self.line), self.line[0])


def draw(random: Random, runs_dir: Path, dialogues: Path, *, sweeps: bool = True) -> Scenario:
    """A scenario whose runs lie in `runs_dir`; a sweep too, unless `sweeps` is false."""
    where = f"runs_dir={runs_dir}"
    kinds = ("train", "finetune", "dialogue", "fixed", "sweep")
    kind = random.choices(kinds, (12, 2, 2, 2, sweeps))[0]
    toy = ("train", *SMALL, *TOY, *random.choice(TRIGGERS))
    epochs = f"max_epochs={random.choice(EPOCHS)}"
    saving, precision = random.choice(SAVING), random.choice(PRECISIONS)
    if kind == "sweep":
        axis = random.choice(("seed=1,2,3", "head/transform=identity,gss,sigsoftmax"))
        launcher = random.choice(((), ("hydra/launcher=packed", "hydra.launcher.runs=2")))
        return Scenario((*toy, epochs, *saving, *precision, where, "--multirun", axis, *launcher))
    if kind == "dialogue":
        data = f"data.root={dialogues}"
        line = (*SMALL, *DIALOGUE, data, *random.choice(MIXTURES), *precision)
        return Scenario(("train", *line, epochs, *saving, where))
    if kind == "finetune":
        start = ("train", *SMALL, *TOY, "trigger=never", "max_epochs=2", *_head(random))
        own = ("logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null")
        return Scenario(("finetune", *own, *saving, epochs, "lr=1", where), start)
    if kind == "fixed":
        mixture = random.choice(MIXTURES)
        start = ("train", *SMALL, *TOY, "trigger=never", "max_epochs=1", *mixture)
        line = ("train", "trunk=fixed", "head.tie_weights=false", *QUIET, *_head(random))
        line += (*random.choice(WINDOWS), *random.choice(((), ("trunk.output_dropout=0.2",))))
        return Scenario((*line, epochs, *saving, where), start, takes="trunk.of")
    return Scenario(
        (*toy, epochs, *saving, *precision, *random.choice(TRUNKS), *_head(random), where)
    )


def _head(random: Random) -> Sequence[str]:
    if random.random() < 0.25:
        return random.choice(OTHER_HEADS)
    return (*random.choice(MIXTURES), *random.choice(TRANSFORMS))
