"""Forward and backward as one CUDA graph per window length, recorded when it first occurs.

A graph has fixed shapes and addresses, so inputs are copied to where it reads. It is one launch
instead of a few hundred. Clipping, the optimizer and averaging stay outside.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmkit.errors.user_error import UserError
from lmkit.training.context import RunCallback
from lmkit.training.language_model import LanguageModel, Step

Record = Callable[[Callable[[], None]], Callable[[], None]]


class CudaGraphs(RunCallback):
    """Makes a `LanguageModel` that trains on a GPU replay its steps."""

    def check(self, module: pl.LightningModule) -> None:
        if not isinstance(module, LanguageModel):
            raise UserError(
                "callbacks.cuda_graphs needs module=language_model, whose batches have few "
                f"shapes, but the module is a {type(module).__name__}"
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)  # checked before
        if pl_module.device.type == "cuda":
            if torch.is_anomaly_enabled():
                raise UserError(
                    "callbacks.cuda_graphs cannot record what trainer.detect_anomaly=true asks of "
                    "each step: leave one of them out"
                )
            parameters = [p for p in pl_module.parameters() if p.requires_grad]
            pl_module.replayed_step = RecordedStep(
                pl_module.step, parameters, cuda_recorder(), list(pl_module.buffers())
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)
        pl_module.replayed_step = None

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        # otherwise the graphs and their memory would stay while this process trains another run
        self.on_train_end(trainer, pl_module)


def cuda_recorder() -> Record:
    """Makes a recorder of a function's launches on the GPU; its graphs share a pool of memory."""
    pool = torch.cuda.graph_pool_handle()
    # libraries initialise in a first run, which must not be on the default stream; cuBLAS keeps a
    # workspace for each stream that it has seen
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def record(run: Callable[[], None]) -> Callable[[], None]:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            run()
        return graph.replay

    return record


class _Recording(NamedTuple):
    replay: Callable[[], None]
    inputs: list[Tensor]  # where the graph reads
    outputs: list[Tensor]  # where it writes


class RecordedStep:
    """Records a step for each shape of its first input, and replays it.

    The next call overwrites what this one returned, except the loss.

    Args:
        step: maps tensors to tensors; the first is the loss, and it alone has a gradient.
        parameters: the loss is differentiated by these.
        record: takes a function without arguments, and returns one that repeats its work on the
            same memory.
        buffers: what a step may change in place, and recording is not to.
    """

    def __init__(
        self,
        step: Step,
        parameters: Sequence[nn.Parameter],
        record: Record,
        buffers: Sequence[Tensor] = (),
    ) -> None:
        self.step, self.parameters, self.record = step, list(parameters), record
        self.buffers = buffers
        self.grads: list[Tensor | None] = []  # shared by all recordings to save memory
        self.recordings: dict[torch.Size, _Recording] = {}
        self._recorded_at: list[int] = []  # the addresses of the parameters

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        shape, addresses = inputs[0].shape, [p.data_ptr() for p in self.parameters]
        if addresses != (self._recorded_at or addresses):
            raise UserError(
                "callbacks.cuda_graphs: something replaced the tensors of the weights during "
                "training; copy into them (weight.data.copy_), or leave cuda_graphs out"
            )
        self._recorded_at = addresses
        if shape not in self.recordings:
            self.recordings[shape] = self._recording(inputs)
        recording = self.recordings[shape]
        for place, x in zip(recording.inputs, inputs, strict=True):
            place.copy_(x)
        recording.replay()
        loss, *rest = recording.outputs
        differentiated: Tensor = _Differentiated.apply(  # type: ignore[no-untyped-call]
            loss, self.grads, *self.parameters
        )
        return differentiated, *rest

    def _recording(self, inputs: Sequence[Tensor]) -> _Recording:
        places = [x.clone() for x in inputs]
        outputs: list[Tensor] = []
        device = places[0].device

        def run() -> None:
            outputs.clear()  # before the work, which can then reuse their memory
            # autocast's cache would keep casts of weights beyond their step
            with torch.autocast(
                device.type,
                torch.get_autocast_dtype(device.type),
                torch.is_autocast_enabled(device.type),
                cache_enabled=False,
            ):
                loss, *rest = self.step(*places)
            with torch.autocast(device.type, enabled=False):  # like a trainer's backward
                grads = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            if not self.grads:
                self.grads = [None if grad is None else torch.empty_like(grad) for grad in grads]
            for place, grad in zip(self.grads, grads, strict=True):
                if grad is not None:
                    assert place is not None  # every shape uses the same parameters
                    place.copy_(grad)
            outputs.extend([loss.detach(), *rest])

        before = [buffer.clone() for buffer in self.buffers]
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            replay = self.record(run)  # its dropout masks belong to no window
        for buffer, value in zip(self.buffers, before, strict=True):
            buffer.copy_(value)
        return _Recording(replay, places, outputs)


class _Differentiated(torch.autograd.Function):
    """The loss, whose gradients are computed already."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, grads: list[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.grads = grads
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if grad is None else grad * grad_output for grad in ctx.grads)
        return None, None, *grads
