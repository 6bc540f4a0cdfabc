"""Makes the objects of a run from its configuration, each once; errors are one line."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import Tensor, nn

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule
from lmkit.errors.user_error import UserError, parameters, require_count, require_flag
from lmkit.experiment.conclusion import Conclusion
from lmkit.experiment.definition import RunDefinition
from lmkit.experiment.make import Section, factory_of, make
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture
from lmkit.heads.own import own_parts, require_one_model
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames, family_of, head_name, name_of, place_of
from lmkit.runs.stop_signals import StopSignals
from lmkit.runs.train_log import TrainLog
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.callbacks.epoch_end import AfterEpoch, EpochEnd
from lmkit.training.callbacks.stopping import Stopping
from lmkit.training.checkpoint_files import AtomicCheckpointIO
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import HeadModule
from lmkit.training.objective import RegularizedNLL
from lmkit.training.schedule import Schedule
from lmkit.training.trainer import MetricsLogger, Trainer, check_options
from lmkit.training.triggers import Trigger
from lmkit.trunk.trunk import LayeredTrunk, Trunk

LIGHTNINGS = ("pytorch_lightning.", "lightning.")
# Lightning callbacks, with derived classes, that would change what a step or an average is
NOT_TAKEN = {
    "GradientAccumulationScheduler": "every window is a step",
    "StochasticWeightAveraging": "the trigger averages the weights",
    "WeightAveraging": "the trigger averages the weights",
    "BatchSizeFinder": "windows.batch_size is part of a run's identity",
    "LearningRateFinder": "optimizer.lr is part of a run's identity; try values with --multirun",
    "BaseFinetuning": "averaging needs the same parameters throughout; trunk=fixed trains heads",
    "ModelPruning": "it replaces weights that are shared with the decoder and averaged by name",
}


class RunObjects(NamedTuple):
    """All that training takes."""

    data: DataModule
    model: HeadModule
    run: RunContext
    epoch_end: EpochEnd
    trainer: Trainer
    conclusion: Conclusion


def make_objects(
    defined: RunDefinition,
    check_lock: Callable[[], None],
    signals: StopSignals,
    after_epoch: AfterEpoch | None,
) -> RunObjects:
    """The objects of a run; the arguments are those of `RunContext` and `EpochEnd`. Writes nothing.

    Raises: UserError naming the option that is wrong.
    """
    config = defined.config
    torch.set_num_threads(config["threads"])
    require_fit(config, defined.source)
    switch = AsgdSwitch(make(config["trigger"], "trigger", Trigger))
    conclusion = make(config["conclusion"], "conclusion", Conclusion)
    try_loggers(config)
    corpus = defined.loaded()
    data = make_data(config, corpus)
    data.train_batches, data.eval_batches("valid"), data.eval_batches("test")  # may refuse
    pl.seed_everything(config["seed"], verbose=False)
    model = make_model(config, torch.from_numpy(corpus.train_word_counts()))
    epoch_end = make_epoch_end(config, after_epoch)
    # the last one behind a user's ModelCheckpoint: what it saves of that is of the same epoch
    callbacks = [switch, *make_callbacks(config, model), epoch_end]
    run = RunContext(
        folder=defined.folder,
        identity=defined.identity,
        names=names_of(model, switch.trigger, defined.source),
        config=config,
        vocabulary=corpus.vocabulary,
        tokenizer=defined.source.tokenizer_json(),
        metrics=MetricsFile(defined.folder.metrics, check_lock),
        switch=switch,
        signals=signals,
        log=TrainLog(defined.folder.log, check_lock),
        check_lock=check_lock,
    )
    for callback in callbacks:
        if isinstance(callback, RunCallback):
            callback.attach(run)
    trainer = make_trainer(
        config["trainer"],
        defined.accelerator,
        max_epochs=defined.budget.max_epochs,
        callbacks=callbacks,
        logger=[MetricsLogger(run.metrics, lambda: (trainer.global_step, trainer.current_epoch))],
        checkpoint_io=AtomicCheckpointIO(check_lock),
    )
    data.train_batches.limit = trainer.windows_per_epoch
    return RunObjects(data, model, run, epoch_end, trainer, conclusion)


def require_fit(config: Section, source: Corpus) -> None:
    """Raises UserError where data, windows, module and trunk do not fit together."""
    kinds = {option: _class_of(config[option], option) for option in ("windows", "module", "trunk")}
    windows, module, trunk = kinds.values()
    if not issubclass(windows, DataModule) or not issubclass(module, HeadModule):
        return  # which is refused when it is made
    misfits = (
        ("windows", windows, source.splits, windows.takes, "data"),
        ("module", module, windows.makes, module.takes, "windows"),
        ("module", module, trunk, module.trunk_kind, "trunk"),
    )
    for option, kind, given, taken, giver in misfits:
        if not issubclass(given, taken):
            raise UserError(
                f"{option} is {kind.__name__}, which takes {taken.__name__}, but {giver} gives "
                f"{given.__name__}: data={source.name} goes with {source.goes_with}"
            )


def _class_of(section: object, option: str) -> type[object]:
    """The class that a section names; `object` if it names no class."""
    made = factory_of(section, option).func
    return made if isinstance(made, type) else object


def make_data(config: Section, corpus: object) -> DataModule:
    """The batches of a corpus. Raises: UserError naming the option that is wrong."""
    seed = config["seed"]
    return make(config["windows"], "windows", DataModule, corpus=corpus, seed=seed)


def make_model(config: Section, word_counts_V: Tensor) -> HeadModule:
    """The untrained model of a configuration (plain data, resolved).

    Parameters are drawn from torch's global generator, in a fixed order; within
    `torch.device("meta")` there are only shapes, which take no memory.

    Args:
        word_counts_V: int64, how often each word occurs in the training text; zeros do if weights
            are loaded afterwards.
    """
    trunk = make(config["trunk"], "trunk", nn.Module, num_words=len(word_counts_V))
    model = make(
        config["module"],
        "module",
        HeadModule,
        trunk=trunk,
        head=make_head(config["head"], word_counts_V, trunk),
        objective=make(config["objective"], "objective", RegularizedNLL),
        optimizer=factory_of(config["optimizer"], "optimizer"),
        schedule=make(config["schedule"], "schedule", Schedule),
    )
    model.weight_names = frozenset(model.state_dict())
    return model


def make_head(section: Section, word_counts_V: Tensor, trunk: nn.Module) -> Head:
    """The untrained head of a configuration's section, perhaps tied to a trunk's embedding."""
    head = _made_head(section, word_counts_V, trunk)
    if own_parts(head) and not word_counts_V.is_meta and word_counts_V.any():
        try:
            with torch.random.fork_rng(devices=[]):
                again = _made_head(section, torch.zeros_like(word_counts_V), trunk)
            require_one_model(head, again)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{' and '.join(own_parts(head))}, made anew as for a run that is loaded, where "
                f"word_counts_V is zeros: {reason}"
            ) from error
    return head


def _made_head(section: Section, word_counts_V: Tensor, trunk: nn.Module) -> Head:
    _require_sizes(section, trunk)
    mixture: Any = make(section.get("mixture"), "head.mixture", nn.Module)
    transform = make_transform(section.get("transform"), len(word_counts_V))
    require_flag("head.tie_weights", section.get("tie_weights"))
    embedding_weight = trunk.embedding_weight if section["tie_weights"] else None
    assert embedding_weight is None or isinstance(embedding_weight, nn.Parameter)
    parts = HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=word_counts_V,
        embedding_weight=embedding_weight,
        chunk_mb=section.get("chunk_mb"),
    )
    shared = ("mixture", "transform", "tie_weights", "chunk_mb")
    own = {key: value for key, value in section.items() if key not in shared}
    if own.get("start") in ("fresh", "trunk"):
        del own["start"]  # trunk=fixed's; a user's class may have its own
    of_earlier_runs = own.get("loss") in ("chunked", "plain")
    if of_earlier_runs and "loss" not in parameters(factory_of(own, "head").func):
        del own["loss"]
    if own.get("decoder_rank") is None:
        own.pop("decoder_rank", None)  # a user's class need not accept it
    _require_input(mixture, trunk)
    head = make(own, "head", Head, parts=parts)
    _require_input(head.mixture, trunk)  # Mixtape brings its own
    return head


def _require_input(mixture: Mixture, trunk: nn.Module) -> None:
    """Raises UserError unless the trunk gives what a mixture reads."""
    reads, gets = mixture.in_dim, trunk.out_dim
    if mixture.layers is not None:
        count = getattr(trunk, "num_layers", None)  # a user's trunk may not say
        if not isinstance(trunk, Trunk) or count == 0:
            raise UserError(
                f"{type(mixture).__name__} takes the outputs of several layers, and "
                f"{type(trunk).__name__} gives those of its last alone: choose another head/mixture"
            )
        if count is not None and max(mixture.layers) > count:
            raise UserError(
                f"{type(mixture).__name__} takes the output of layer {max(mixture.layers)}, and "
                f"trunk.num_layers is {count}"
            )
    elif reads != gets:
        raise UserError(f"{mixture.in_option} ({reads}) must be equal to trunk.out_dim ({gets})")


def _require_sizes(section: Section, trunk: nn.Module) -> None:
    """Raises UserError for a size of our classes that is none, or not that of a trunk's layers."""
    for option, part in (("head", section), ("head.mixture", section.get("mixture"))):
        if not isinstance(part, Mapping) or not str(part.get("_target_")).startswith("lmkit."):
            continue
        for name in ("in_dim", "emb_dim", "hidden_dim", "out_dim"):
            if name in part:
                require_count(f"{option}.{name}", part[name])
        if "num_layers" in part and isinstance(trunk, LayeredTrunk):  # it reads all of them
            of_trunk = (trunk.emb_dim, trunk.hidden_dim, trunk.out_dim, trunk.num_layers)
            names = ("emb_dim", "hidden_dim", "out_dim", "num_layers")
            experts = part.get("experts")
            # without components of the embedding, emb_dim is the decoder's alone
            is_free = isinstance(experts, list) and experts[:1] == [0]
            for name, theirs in zip(names, of_trunk, strict=True):
                if part[name] != theirs and not (is_free and name == "emb_dim"):
                    raise UserError(
                        f"{option}.{name} ({part[name]}) must be equal to trunk.{name} ({theirs})"
                    )


def make_transform(section: object, num_words: int) -> nn.Module:
    """The transform of a section; one that takes `num_words` gets it, as for a parameter a word."""
    given: dict[str, object] = {}
    if isinstance(section, Mapping) and isinstance(section.get("transform"), Mapping):
        given["transform"] = make_transform(section["transform"], num_words)
        section = {name: value for name, value in section.items() if name != "transform"}
    factory = factory_of(section, "head.transform")
    takes = parameters(factory.func)
    if "num_words" in takes and "num_words" not in factory.keywords:
        given["num_words"] = num_words
    there = given.keys() | factory.keywords.keys()
    lacks = [name for name, p in takes.items() if p.default is p.empty and name not in there]
    if lacks and inspect.isfunction(factory.func):
        raise UserError(
            f"head.transform._target_={factory.func.__module__}.{factory.func.__qualname__} is a "
            f"function of {lacks[0]}: a transform is a class derived from torch.nn.Module, with "
            f"the formula in its forward"
        )
    return make(section, "head.transform", nn.Module, **given)


def make_epoch_end(config: Section, after_epoch: AfterEpoch | None = None) -> EpochEnd:
    """What saves and ends the run. Raises: UserError where it is left out or an option is wrong."""
    section = config["callbacks"].get("checkpoints")
    if section is None:
        raise UserError(
            "callbacks.checkpoints cannot be left out: a killed run could not resume; others come "
            "beside it by 'callbacks=[default,NAME]'"
        )
    rule = config["stopping"]
    if rule and rule.get("epochs", 0) is None:  # no patience: another rule need not take it
        takes = parameters(factory_of(rule, "stopping").func)
        rule = {option: v for option, v in rule.items() if option != "epochs" or option in takes}
    stopping = make(rule, "stopping", Stopping)
    if not hasattr(stopping, "history"):
        raise UserError(f"stopping._target_={rule['_target_']} must call super().__init__()")
    return make(
        section, "callbacks.checkpoints", EpochEnd, stopping=stopping, after_epoch=after_epoch
    )


def make_callbacks(config: Section, module: HeadModule) -> list[pl.Callback]:
    """The configured callbacks but for `checkpoints`, in their order.

    Raises: UserError naming the option that is wrong, or one that does not go with the module.
    """
    callbacks: list[pl.Callback] = []
    for name, section in config["callbacks"].items():
        if section is None or name == "checkpoints":
            continue
        callback = make(section, f"callbacks.{name}", pl.Callback)
        for kind in type(callback).__mro__:
            if kind.__name__ in NOT_TAKEN and kind.__module__.startswith(LIGHTNINGS):
                given, reason = type(callback).__name__, NOT_TAKEN[kind.__name__]
                raise UserError(f"callbacks.{name}={given} cannot be set: {reason}")
        if isinstance(callback, RunCallback):
            callback.check(module)
        callbacks.append(callback)
    return callbacks


def make_trainer(section: Section, accelerator: str, **parts: object) -> Trainer:
    """The Trainer of a section. Raises: UserError naming an option that a run cannot support."""
    check_options({key: value for key, value in section.items() if key != "_target_"})
    try:
        return make({**section, "accelerator": accelerator}, "trainer", Trainer, **parts)
    except RuntimeError as error:
        said = str(error).partition(". ")[0]
        if "stateful callback" not in said:
            raise
        raise UserError(f"callbacks: {said}: give each a state_key of its own") from error


def make_loggers(config: Section, folder: RunFolder) -> list[Logger]:
    """The configured loggers, in their order; they write into the run's folder.

    Raises: UserError naming the option that is wrong.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
    sections = {n: s for n, s in folder.substituted(config["logger"]).items() if s is not None}
    mlflow = sections.get("mlflow")
    # the address may hold a password, which no configuration stores
    if isinstance(mlflow, dict) and mlflow.get("tracking_uri", "") is None:
        database = f"sqlite:///{folder.path.resolve()}/mlflow.db"
        mlflow["tracking_uri"] = os.environ.get("MLFLOW_TRACKING_URI") or database
    return [_made_logger(section, f"logger.{name}") for name, section in sections.items()]


def _made_logger(section: object, option: str) -> Logger:
    try:
        return make(section, option, Logger)
    except UserError:
        raise
    except Exception as error:  # of a tracker's own kind: it decides no number
        said = str(error).partition("\n")[0]
        raise UserError(f"{option}: {type(error).__name__}: {said}") from error


def try_loggers(config: Section) -> None:
    """Makes the loggers elsewhere than in the run's folder, which there is only once all is made.

    They are made again there: MLflow's, for one, opens its database as it is made.

    Raises: UserError naming the option that is wrong.
    """
    with TemporaryDirectory() as folder:
        make_loggers(config, RunFolder(Path(folder)))


def try_rest(config: Section) -> None:
    """Makes what needs neither data nor a model, nor where training takes place.

    Raises: UserError naming the option that is wrong.
    """
    make(config["trigger"], "trigger", Trigger)
    make_epoch_end(config)
    try_loggers(config)
    make(config["conclusion"], "conclusion", Conclusion)
    make_trainer(config["trainer"], "auto")


def names_of(model: HeadModule, trigger: Trigger, source: Corpus) -> RunNames:
    """The display names of a run's kinds."""
    head = model.head
    kinds: Sequence[object] = (head, head.mixture, head.transform)
    name = head_name([name_of(kind) for kind in kinds])
    return RunNames(
        name,
        family_of(name),
        tuple(place_of(kind) for kind in kinds),
        name_of(model.trunk),
        name_of(trigger),
        source.display_name,
        source.short_name,
    )
