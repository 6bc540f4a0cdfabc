"""The language model's LightningModule, whose state is carried from window to window.

Shapes: T window length, B batch, D trunk output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError
from lmkit.heads.predictor import HeadInput
from lmkit.training.head_module import HeadModule, data_of
from lmkit.training.recorded_step import Step
from lmkit.trunk.trunk import LayerState, State, Trunk, TrunkOutput

Encode = Callable[..., tuple[Tensor, ...]]

STANCE = "eager_on_recompile"  # of what runs once the code is compiled


def compiled(
    encode: Encode, tokens_TB: Tensor, state: Sequence[Tensor], parameters: Sequence[nn.Parameter]
) -> Encode:
    """`encode`, compiled for windows of any length, with the same bits whatever ran before.

    PyTorch recompiles for new shapes, so the code for a window would depend on the windows before
    it, of which a resumed run has fewer. So the code is compiled once, for the usual window length
    and with dynamic lengths; a window that it does not fit (a QRNN's code loops by powers of two)
    runs eagerly. Code that other runs left in PyTorch's cache is not used. Compiling happens here,
    takes a minute and draws no random numbers.

    Args:
        encode: takes (T, B) token ids and the states; its first result has a gradient.
        tokens_TB: a window of the usual length.
        state: the states before that window.
        parameters: those that have gradients.

    Raises: UserError where PyTorch cannot compile it.
    """
    torch.compiler.reset()  # otherwise another run of this process may have left code that fits
    made = torch.compile(encode, fullgraph=True, options={"fx_graph_cache": False})
    torch._dynamo.maybe_mark_dynamic(tokens_TB, 0)
    device = tokens_TB.device
    try:
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            warnings.catch_warnings(action="ignore"),  # of unfused complex numbers
        ):
            first, *_ = made(tokens_TB, *state)
            torch.autograd.grad(first.sum(), parameters, allow_unused=True)
    except Exception as error:  # whatever the compiler and those below it raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"compile=true: PyTorch cannot compile the trunk: {reason}") from error

    def encode_any(*inputs: Tensor) -> tuple[Tensor, ...]:
        # the code expects the strides of new tensors; states are views, or were loaded
        dense = [x.clone(memory_format=torch.contiguous_format) for x in inputs]
        with torch.compiler.set_stance(STANCE):
            return made(*dense)

    return encode_any


class LanguageModel(HeadModule):
    """A trunk and a head, trained window by window with truncated backpropagation through time.

    Args: those of `HeadModule`; `trunk` maps token ids (T, B) and a state to a `TrunkOutput`.
    """

    takes, trunk_kind = Window, Trunk
    trunk: Trunk
    hidden: list[LayerState] | None = None  # after the last window trained on
    replayed_step: Step | None = None  # replaces `step` where it is recorded
    compiles = False  # whether training steps encode by `torch.compile`
    compiled_encode: Encode | None = None

    def on_fit_start(self) -> None:
        """Compiles before steps and epochs are timed."""
        data = data_of(self.trainer)
        if not self.compiles or not isinstance(data, WindowsDataModule):
            return
        tokens_TB = torch.zeros(data.bptt, data.batch_size, dtype=torch.long, device=self.device)
        state = [x for layer in self.trunk.initial_state(data.batch_size) for x in layer]
        parameters = [p for p in self.trunk.parameters() if p.requires_grad]
        with self.trainer.precision_plugin.forward_context():
            self.compiled_encode = compiled(self.train().encode, tokens_TB, state, parameters)

    def on_fit_end(self) -> None:
        self.compiled_encode = None

    def training_step(self, window: Window, batch_idx: int) -> Tensor:
        if window.index == 0:
            self.hidden = self.trunk.initial_state(window.inputs_TB.shape[1])
        assert self.hidden is not None  # restored where a run resumes within an epoch
        step = self.replayed_step or self.step
        tensors = [x for layer in self.hidden for x in layer]
        loss, nll, hidden_TBD, *tensors = step(window.inputs_TB, window.targets_TB, *tensors)
        self.hidden = list(zip(tensors[::2], tensors[1::2], strict=True))
        self.log_step(window, nll, loss, hidden_TBD)
        return loss

    def step(self, inputs_TB: Tensor, targets_TB: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """The loss of a window, from tensors to tensors, without waiting for the device.

        The layers' states are passed and returned as separate tensors. Returns the loss, which
        alone has a gradient, the mean nll, the head's input (T, B, D), then the states.
        """
        encode = self.compiled_encode or self.encode
        hidden_TBD, dropped_TBD, raw_TBD, *carried = encode(inputs_TB, *state)
        nll = self.head.nll(hidden_TBD, targets_TB)
        loss = self.objective(nll, dropped_TBD, raw_TBD)
        loss = loss + self.head.penalty(hidden_TBD)
        return loss, nll.detach(), hidden_TBD.detach(), *carried

    def encode(self, inputs_TB: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """What a step needs from the trunk: the head's input, the trunk's last outputs, the
        states."""
        output = self.trunk(inputs_TB, list(zip(state[::2], state[1::2], strict=True)))
        carried = [x.detach() for layer in output.state for x in layer]
        return self.head_input(output), output.dropped_TBD, output.raw_TBD, *carried

    def read(self, window: Window, state: State | None) -> HeadInput:
        state = state or self.trunk.initial_state(window.inputs_TB.shape[1])
        output = self.trunk(window.inputs_TB, state)
        return HeadInput(self.head_input(output), window.targets_TB, output.state)

    def head_input(self, output: TrunkOutput) -> Tensor:
        """The last layer's output, or those of all layers that the mixture names, concatenated."""
        layers = self.head.mixture.layers
        if layers is None:
            return output.dropped_TBD
        return torch.cat([output.layers_TBD[i] for i in layers], dim=2)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        hidden = self.hidden
        if hidden is not None:  # copies: a view would be saved with its whole storage
            hidden = [(a.clone(), b.clone()) for a, b in hidden]
        checkpoint["lmkit_progress"]["hidden"] = hidden

    def restore(self, progress: Mapping[str, Any]) -> None:
        super().restore(progress)
        if progress["hidden"] is not None:
            device = self.device
            self.hidden = [(a.to(device), b.to(device)) for a, b in progress["hidden"]]
