"""A run that W&B records while it trains: Lightning's logger, with the run's spectra and result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Literal, get_args

import wandb
from pytorch_lightning.loggers import WandbLogger as LightningsLogger
from pytorch_lightning.loggers.logger import DummyExperiment  # type: ignore[attr-defined]

from lmkit.errors.user_error import (
    UserError,
    did_you_mean,
    require_choice,
    require_list,
    require_text,
)
from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames
from lmkit.tracking.charts import all_charts, epoch_charts, log_charts, result_fields, run_fields

Mode = Literal["offline", "online", "disabled"]
MODES: tuple[Mode, ...] = get_args(Mode)
INIT_S = 20.0  # timeout of W&B's server, after which nothing is recorded
DEFAULT_PROJECT = "lmkit"
FINISH_S = 120.0  # for uploading the rest at a run's end
# what an agent of W&B's tells the one run that it starts
OF_AN_AGENT = ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH")
_LONGEST_TAG = 64
_TEXTS = ("entity", "group", "job_type", "name", "notes", "tags")  # options of wandb.init
OWN = ("dir", "reinit", "resume", "settings")  # options of wandb.init that lmkit sets


def _ends_alone(method: Callable[..., object]) -> Callable[..., None]:
    """A failure of W&B does not end the run: the first is printed, and nothing more is recorded."""

    @wraps(method)
    def guarded(self: WandbLogger, /, *args: Any, **kwargs: Any) -> None:
        if not self.is_recording:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.is_recording = False
            reason = " ".join(str(error).split()) or type(error).__name__
            print(
                f"W&B's record ends early ({reason}); metrics.csv is complete, and lmkit sync "
                f"records the run when it has finished",
                flush=True,
            )

    return guarded


class WandbLogger(LightningsLogger):
    """Lightning's `WandbLogger` as a `RunObserver`: it is opened when the run begins, and told what
    the run is, its spectra and its result. The record is in the run's folder.

    Args:
        mode: "offline" records in the run's folder; "online" uploads as well, with an account.
            WANDB_MODE and WANDB_DISABLED come first.
        project: the project in W&B.
        group: the name of the run's sweep.
        tags: tags besides the head's name.
        save_dir: the run's folder.
        id: the name of the run's folder.
        options: further ones of `wandb.init`.

    Raises: UserError for a wrong option, or without an account where one is needed.
    """

    def __init__(
        self,
        *,
        save_dir: str,
        id: str,
        mode: Mode,
        project: str,
        group: str | None,
        tags: Sequence[str],
        **options: Any,
    ) -> None:
        require_choice("logger.wandb.mode", mode, MODES)
        project = project or DEFAULT_PROJECT  # WANDB_PROJECT may be set and empty
        require_text("logger.wandb.project", project)
        require_list("logger.wandb.tags", tags or [], "[a,b]", may_be_empty=True)
        texts = [*(("tags", tag) for tag in tags or ()), ("group", group), *options.items()]
        for option, value in texts:  # else W&B refuses them when it records
            if option in _TEXTS and value is not None:
                require_text(f"logger.wandb.{option}", value)
                if option == "tags" and len(value) > _LONGEST_TAG:
                    raise UserError(
                        f"logger.wandb.tags: W&B takes {_LONGEST_TAG} characters at most"
                    )
        if group is not None:
            for variable in OF_AN_AGENT:  # each run of lmkit's own sweep has its own id
                os.environ.pop(variable, None)
        self._mode = _mode(mode)
        self.is_recording = False
        if self._mode == "online" and not wandb.login(prompt=False, verify=False):
            raise UserError(
                "logger.wandb.mode=online needs an account: type `wandb login`, or set "
                "WANDB_API_KEY; logger.wandb.mode=offline needs none, and `lmkit sync` uploads "
                "the run later"
            )
        takes = signature(wandb.init).parameters
        for option in options:
            if option in OWN:
                raise UserError(f"logger.wandb.{option} cannot be set: lmkit sets it")
            if option not in takes:
                near = did_you_mean(option, list(takes), "logger.wandb.")
                raise UserError(f"logger.wandb.{option} is no option of wandb.init{near}")
        super().__init__(save_dir=save_dir, id=id, project=project)
        self._options = options | {"id": id, "project": project, "group": group, "tags": tags}

    @property
    def experiment(self) -> Any:
        """W&B's own run; while nothing is recorded, one of which all methods do nothing."""
        return self._opened if self.is_recording else DummyExperiment()

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        self.is_recording, self._run = self._mode != "disabled", run
        self._open(config, names)

    @_ends_alone
    def _open(self, config: Mapping[str, object], names: RunNames) -> None:
        if os.environ.get("WANDB_DIR"):
            print("WANDB_DIR is passed over: W&B's record of a run is in the run's folder")
        settings = wandb.Settings(
            silent=True,
            resume="allow",
            init_timeout=INIT_S,
            finish_timeout=FINISH_S,
            finish_timeout_raises=True,
        )
        options = self._options | {"mode": self._mode}
        self._opened = opened(str(self.save_dir), config, names, options, settings)

    @_ends_alone
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Logs one row, with epochs counted from 1; callbacks may log without their epoch."""
        epoch = {"epoch": int(metrics["epoch"]) + 1} if "epoch" in metrics else {}
        super().log_metrics({**metrics, **epoch}, step)

    @_ends_alone
    def log_hyperparams(self, params: Any) -> None:
        super().log_hyperparams(params)

    @_ends_alone
    def epoch_spectrum(self, split: str, matrix: str) -> None:
        """Shows spectra as they come where somebody can see them; otherwise at the end."""
        if self._mode == "online":
            log_charts(self.experiment, epoch_charts(self._run, split, matrix), commit=False)

    @_ends_alone
    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        log_charts(self.experiment, all_charts(self._run))
        self.experiment.summary.update({**result_fields(metrics, cost), "finished": True})
        self._finish(0)

    @_ends_alone
    def finalize(self, status: str) -> None:
        """Flushes buffers when an exception ends the training."""
        if status == "failed":
            self._finish(1)

    def _finish(self, exit_code: int) -> None:
        self.experiment.finish(exit_code=exit_code)
        self.is_recording = False


def _mode(asked: Mode) -> Mode:
    """What W&B's own variables say comes first. Raises: UserError for a mode that is none."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes", "on"):
        return "disabled"
    mode = os.environ.get("WANDB_MODE") or asked
    require_choice("WANDB_MODE", mode, MODES)
    return mode  # type: ignore[return-value]


def opened(
    folder: str,
    config: Mapping[str, object],
    names: RunNames,
    options: Mapping[str, Any],
    settings: wandb.Settings,
) -> wandb.Run:
    """A record in wandb/ of the folder, with what the run is. Everything in it is drawn over the
    steps, as by Lightning's logger.

    Lightning's own opening takes a run that this process left open, and warns each time.

    Args:
        options: of `wandb.init`, but for OWN.
    """
    tags = list(dict.fromkeys([names.family, *(options.get("tags") or ())]))
    is_free = "WANDB_CACHE_DIR" not in os.environ
    if is_free:  # W&B's own process, if it starts here, then logs there, not in the home
        os.environ["WANDB_CACHE_DIR"] = folder
    try:
        run = wandb.init(
            **{**options, "tags": tags}, dir=folder, reinit="create_new", settings=settings
        )
    finally:
        if is_free:
            del os.environ["WANDB_CACHE_DIR"]
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    run.summary.update({**run_fields(config, names), "finished": False})
    return run
