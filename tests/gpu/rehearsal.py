"""One case of rehearse.py: what a run does with a model, phase by phase, on tensors without values.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from faked import Watch, faked
from rehearse import Case, composed

from lmkit.data.windows import EvalWindows, Window
from lmkit.experiment.objects import make_model
from lmkit.measures import model_spectra as spectra
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.head_module import HeadModule
from lmkit.training.triggers import AtEpoch

SILENT = ("window", "window with averaging")  # phases in which nothing may wait


class Rehearsed:
    """A model on the device, with all that a trainer would give it."""

    def __init__(self, config: dict[str, Any], args: argparse.Namespace) -> None:
        self.device, self.bf16 = args.device, config["trainer"]["precision"] == "bf16-mixed"
        self.batch, self.length = args.batch, args.window
        self.num_words = 200 if args.small else args.words
        self.model: HeadModule = make_model(config, torch.zeros(self.num_words, dtype=torch.long))
        self.model.train()
        self.model._trainer = SimpleNamespace(log_every_n_steps=50, current_epoch=0)
        self.model.restored = None
        self.optimizer = self.model.configure_optimizers()
        self.switch = AsgdSwitch(AtEpoch(1))
        self.clip = config["trainer"]["gradient_clip_val"]
        tokens_TB = torch.zeros(self.length, self.batch, dtype=torch.long)
        self.tokens_TB, self.targets_TB = tokens_TB, tokens_TB.clone()

    def window(self, index: int) -> Window:
        return Window(self.tokens_TB, self.targets_TB, self.length, index, 1, False, 0.5)

    def start(self) -> None:
        self.model.bad_window = torch.full((), -1, device=self.device)
        for metric in (self.model.train_nll, self.model.valid_nll):
            metric.reset()

    def train_on(self, index: int) -> None:
        """A window as Lightning trains on it."""
        model, window = self.model, self.window(index)
        model.on_train_batch_start(window, index)

        def closure() -> torch.Tensor:
            with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
                loss = model.training_step(window, index)
            self.optimizer.zero_grad()
            loss.backward()
            model.configure_gradient_clipping(self.optimizer, self.clip)
            return loss

        for group in self.optimizer.param_groups:
            group["lr"] *= model._lr_scale
        self.optimizer.step(closure)
        assert all(p.grad is None or p.grad.device == p.device for p in model.parameters())
        self.switch.on_train_batch_end(None, model, None, window, index)

    def average(self) -> None:
        self.switch.switched_after = 1

    def log(self) -> None:
        """What the logged window's row is made of."""
        metrics = self.model.window_metrics
        assert metrics is not None
        rough = [k for k, v in metrics.items() if isinstance(v, torch.Tensor) and v.itemsize < 4]
        if rough:
            raise TypeError(f"logged in {metrics[rough[0]].dtype}: {', '.join(rough)}")
        row = {name: float(v) for name, v in metrics.items()}
        row["grad_norm"] = float(self.model.grad_norm)
        assert len(row) > 8

    def eval_windows(self, contexts: int = 3_000) -> EvalWindows:
        """As many and a few more, in ten columns."""
        with torch.device("cpu"):
            return EvalWindows(torch.zeros(contexts // 10 + 2, 10, dtype=torch.long), 70)

    def validate(self) -> None:
        model = self.model
        model.check_finite()
        with self.switch.averaged(model):
            for window in self.eval_windows():
                on_device = window._replace(
                    inputs_TB=window.inputs_TB.to(self.device, non_blocking=True),
                    targets_TB=window.targets_TB.to(self.device, non_blocking=True),
                )
                model.validation_step(on_device, window.index)
        float(model.valid_nll.compute())

    def conclude(self) -> None:
        for nll_TB in self.model.token_nlls(self.eval_windows()):
            assert nll_TB.device.type == self.device

    def spectrum(self) -> None:
        """Both ways to singular values, which are measured on the CPU."""
        real, spectra.measure = spectra.measure, lambda *_: None
        try:
            for matrix in ("log_probs", "transformed_logits"):
                if matrix == "log_probs" or matrix in spectra.matrices_of(self.model):
                    for contexts in (2_000, self.num_words + 8):
                        spectra.model_spectrum(
                            self.model, self.eval_windows(contexts), contexts, matrix
                        )
        finally:
            spectra.measure = real


def rehearse(case: Case, args: argparse.Namespace) -> str:
    """Goes through the phases of a run. Returns "ok", with what waits where, or what is wrong."""
    phase, lines = "building", []
    try:
        config = composed(case)
        with faked(args.device):
            run = Rehearsed(config, args)
            run.start()
            phases: list[tuple[str, Callable[[], None]]] = [
                ("logged window", lambda: run.train_on(0)),
                ("row of metrics", run.log),
                ("window", lambda: run.train_on(1)),
                ("averaging starts", run.average),
                ("first averaged window", lambda: run.train_on(2)),
                ("window with averaging", lambda: run.train_on(3)),
                ("validation", run.validate),
                ("conclusion", run.conclude),
                ("spectrum", run.spectrum),
            ]
            for phase, work in phases:  # named where an error ends it
                with Watch() as watch:
                    work()
                lines.append(_line(phase, watch))
                if phase in SILENT and watch.waits:
                    wait = watch.waits[0]
                    return f"{len(watch.waits)} waits in a {phase}: {wait.name} at {wait.where}"
    except Exception as error:
        place = _place(error)
        message = str(error).strip().splitlines() or [""]
        return f"{phase}: {type(error).__name__}: {message[0][:200]} ({place})"
    return "\n  ".join(["ok", *lines]) if args.verbose else "ok"


def _line(phase: str, watch: Watch) -> str:
    waits = Counter(f"{wait.name} at {wait.where}" for wait in watch.waits)
    told = "; ".join(f"{count} x {wait}" for wait, count in waits.items())
    return f"{phase}: {len(watch.launches):,} launches, {len(watch.waits)} waits {told}".rstrip()


def _place(error: BaseException) -> str:
    place, traceback = "", error.__traceback__
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if "/lmkit/" in path:
            place = f"{path.rpartition('/lmkit/')[2]}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
