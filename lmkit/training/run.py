"""One run, from its lock to its result."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment

from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.evaluation.conclusion import Trained, conclude, show
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import Identity, identity
from lmkit.runs.leave import LEFT, Leave
from lmkit.runs.lock import RunLock
from lmkit.runs.names import RunNames, family_of, head_name, name_of, place_of
from lmkit.runs.result import Budget, Spent
from lmkit.training.build import build_data, build_model, create
from lmkit.training.callbacks.asgd_switch import AsgdSwitch, load_evaluated_weights
from lmkit.training.callbacks.checkpoints import AtomicCheckpointIO, Checkpoints, load_checkpoint
from lmkit.training.callbacks.cost import Cost
from lmkit.training.callbacks.cuda_graphs import CudaGraphs, require_recordable
from lmkit.training.callbacks.gradient_bottleneck import GradientBottleneck
from lmkit.training.callbacks.metrics_logger import MetricsLogger
from lmkit.training.callbacks.patience import NonMonotoneStop, Patience
from lmkit.training.callbacks.progress import EpochProgress
from lmkit.training.callbacks.requeue import Requeue
from lmkit.training.callbacks.spectrum import SpectrumCallback
from lmkit.training.callbacks.transform_plot import TransformPlot
from lmkit.training.finetuning import start_from_parent
from lmkit.training.head_module import HeadModule

PRECISIONS = ("32-true", "tf32", "bf16-mixed")


@dataclass(frozen=True)
class Run:
    """What a run is, before anything of it is built."""

    config: dict
    source: object  # the corpus, not yet read
    data_sha256: str
    identity: Identity
    folder: RunFolder
    budget: Budget
    accelerator: str


def define(config: dict, has_gpu: bool | None = None) -> Run:
    """Checks the options that no object checks, and finds the run's identity and folder.

    Args:
        config: the composed configuration as plain data.
        has_gpu: whether a GPU is there where the run is to be trained; None: it is trained here.
    """
    require_count("threads", config["threads"])
    require_count("seed", config["seed"], 0)
    require_count("callbacks.log_every", config["callbacks"]["log_every"])
    require_choice("trainer.precision", config["trainer"]["precision"], PRECISIONS)
    require_choice("trainer.accelerator", config["trainer"]["accelerator"], ("auto", "cpu", "gpu"))
    require_choice("logger.mode", config["logger"]["mode"], ("offline", "online", "disabled"))
    for option in ("max_epochs", "patience"):
        if config[option] is not None:
            require_count(option, config[option])
    contexts = config["callbacks"]["spectrum"]["final_contexts"]
    if contexts is not None:
        require_count("callbacks.spectrum.final_contexts", contexts, 2)
    if has_gpu is None:
        has_gpu = torch.cuda.is_available()
    if config["trainer"]["accelerator"] == "gpu" and not has_gpu:
        raise UserError("trainer.accelerator=gpu needs a CUDA device, and there is none here")
    on_gpu = has_gpu and config["trainer"]["accelerator"] != "cpu"
    if config["trainer"]["precision"] == "tf32" and not on_gpu:
        raise UserError("trainer.precision=tf32 is a GPU's; on a CPU take 32-true or bf16-mixed")
    source = create(config["data"], "data")
    sha256 = source.fingerprint()
    found = identity(config, sha256, "cuda" if on_gpu else "cpu")
    folder = RunFolder.of(config["runs_dir"], config["name"], found)
    budget = Budget(config["max_epochs"], config["patience"])
    return Run(config, source, sha256, found, folder, budget, "gpu" if on_gpu else "cpu")


def run(config: dict) -> RunFolder:
    """Trains a configuration to its end: anew, from where it stopped, or not at all if it is done.

    Raises: UserError for whatever the user can mend; what was there before is kept.
    """
    defined = define(config)
    folder = defined.folder
    if folder.finished_within(defined.budget):
        print(f"already finished: {folder.path}")
        show(folder)
        return folder
    # every option is checked by what it makes, before a folder is: two words, whatever the corpus
    model = build_model(config, torch.zeros(2, dtype=torch.int64))
    create(config["trigger"], "trigger")
    if config["callbacks"]["cuda_graphs"]:
        require_recordable(model)
    names = run_names(model, create(config["trigger"], "trigger"), defined.source)
    del model  # its trunk is as large as the one to be trained
    with Leave() as leave, RunLock(folder.lock) as lock:
        leave.at_once = True
        if folder.state() == "finished":
            if folder.finished_within(defined.budget):  # by another process, just now
                show(folder)
                return folder
            folder.reopen()
        folder.prepare(yaml.safe_dump(config, sort_keys=False), defined.identity, names)
        _train_and_conclude(defined, lock, leave)
    show(folder)
    return folder


def run_names(model: HeadModule, trigger: object, source: object) -> RunNames:
    """What the kinds of a run are called."""
    head = model.head
    kinds = (head, head.mixture, head.transform)
    name = head_name([name_of(kind) for kind in kinds])
    corpus = name_of(source)
    return RunNames(
        name,
        family_of(name),
        tuple(place_of(kind) for kind in kinds),
        name_of(model.trunk),
        name_of(trigger),
        corpus,
        corpus,
    )


def _train_and_conclude(defined: Run, lock: RunLock, leave: Leave) -> None:
    config, folder = defined.config, defined.folder
    torch.set_num_threads(config["threads"])
    corpus = defined.source.load()
    data = build_data(config, corpus)
    data.train_windows, data.eval_windows("valid"), data.eval_windows("test")  # refuse early
    pl.seed_everything(config["seed"], verbose=False)
    model = build_model(config, torch.from_numpy(corpus.train_word_counts()))
    switch = AsgdSwitch(create(config["trigger"], "trigger"))
    patience, cost = _patience(config, switch), Cost()
    metrics = MetricsLogger(folder.metrics)
    checkpoints = Checkpoints(
        folder.checkpoints,
        defined.identity.digest,
        config,
        list(corpus.vocabulary),
        metrics.file,
        config["callbacks"]["checkpoint_minutes"],
    )
    spectrum = _spectrum(config, folder, switch, lock)
    bottleneck = GradientBottleneck(switch, **config["callbacks"]["gradient_bottleneck"])
    callbacks = [switch, patience, cost, spectrum, bottleneck, TransformPlot(), checkpoints]
    callbacks.append(Requeue(leave, checkpoints))
    if config["callbacks"]["cuda_graphs"]:
        callbacks.append(CudaGraphs())
    if config["callbacks"]["progress_bar"]:
        callbacks.append(EpochProgress())
    trainer = _trainer(defined, callbacks, [metrics, *_wandb(defined)], lock)
    resumed = _checkpoint_to_resume(folder, defined.identity)
    if resumed is None and "parent" in config:
        start_from_parent(model, checkpoints, config["parent"], lock.check)
    try:
        trainer.fit(model, datamodule=data, ckpt_path=resumed, weights_only=True)
    except SystemExit as end:
        if not trainer.interrupted or end.code == LEFT:
            raise
        resume = "the same command again goes on from the last checkpoint"
        raise UserError(f"interrupted: {resume}") from None
    load_evaluated_weights(model, load_checkpoint(folder.best))
    model.to("cuda" if defined.accelerator == "gpu" else "cpu")
    stopped = "patience" if patience.exhausted else "max_epochs"
    spent = Spent(config["max_epochs"], config["patience"], trainer.current_epoch, stopped)
    trained = Trained(model, data, trainer.global_step, checkpoints, cost, switch, spent)
    conclude(defined, trained, trainer.loggers, lock.check)


def _patience(config: dict, switch: AsgdSwitch) -> Patience | NonMonotoneStop:
    """What ends the run before `max_epochs`: a finetuning run by its authors' rule."""
    if "parent" in config:
        return NonMonotoneStop(config["patience"])
    return Patience(switch, config["patience"])


def _spectrum(
    config: dict, folder: RunFolder, switch: AsgdSwitch, lock: RunLock
) -> SpectrumCallback:
    options = config["callbacks"]["spectrum"]
    return SpectrumCallback(
        folder.spectra,
        switch,
        options["every"],
        options["contexts"],
        options["splits"],
        options["weights"],
        lock.check,
    )


def _checkpoint_to_resume(folder: RunFolder, found: Identity) -> Path | None:
    """The last checkpoint, None where there is none yet.

    Raises: UserError when it is damaged or another configuration's.
    """
    if not folder.last.exists():
        return None
    theirs = load_checkpoint(folder.last).get("lmkit", {}).get("identity")
    if theirs != found.digest:
        raise UserError(
            f"{folder.last} is the checkpoint of another configuration ({theirs}, this one is "
            f"{found.digest}); remove it to start this run anew"
        )
    return folder.last


def _trainer(
    defined: Run, callbacks: list[pl.Callback], loggers: list[Logger], lock: RunLock
) -> pl.Trainer:
    trainer = defined.config["trainer"]
    # state is carried from window to window, so there is one stream of batches and no workers
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")  # one process
    # said in full: PyTorch's own default is TF32 in cuDNN and not in other products
    by_tf32 = trainer["precision"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = by_tf32
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    return pl.Trainer(
        accelerator=defined.accelerator,
        devices=1,
        precision="32-true" if by_tf32 else trainer["precision"],
        deterministic=trainer["deterministic"],
        max_epochs=defined.budget.max_epochs or -1,
        callbacks=callbacks,
        logger=loggers,
        # one process whatever the scheduler started: Lightning would find SLURM and requeue itself
        plugins=[AtomicCheckpointIO(lock.check), LightningEnvironment()],
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=defined.config["callbacks"]["progress_bar"],
        default_root_dir=defined.folder.path,
    )


def _wandb(defined: Run) -> list[Logger]:
    """W&B's logger, offline unless asked: nothing asks for an account."""
    settings, folder = defined.config["logger"], defined.folder.path
    if settings["mode"] == "disabled":
        return []
    import wandb

    from lmkit.tracking.live import MirrorLogger, open_run

    run = open_run(
        folder.name,
        defined.config,
        folder,
        settings["mode"],
        settings["group"],
        "allow",
        wandb.Settings(silent=True),
    )
    return [MirrorLogger(run)]
