"""The language model's LightningModule, whose state is carried from window to window.

Shapes: T window length, B batch, D trunk output.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lmkit.data.windows import Window
from lmkit.heads.predictor import HeadInput
from lmkit.training.head_module import HeadModule
from lmkit.trunk.trunk import LayerState, State, Trunk, TrunkOutput

Step = Callable[..., tuple[Tensor, ...]]  # tensors to tensors; the first is the loss


class LanguageModel(HeadModule):
    """A trunk and a head, trained window by window with truncated backpropagation through time.

    Args: those of `HeadModule`; `trunk` maps token ids (T, B) and a state to a `TrunkOutput`.
    """

    takes, trunk_kind = Window, Trunk
    trunk: Trunk
    hidden: list[LayerState] | None = None  # after the last window trained on
    replayed_step: Step | None = None  # replaces `step` where it is recorded

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
        output = self.trunk(inputs_TB, list(zip(state[::2], state[1::2], strict=True)))
        hidden_TBD = self.head_input(output)
        nll = self.head.nll(hidden_TBD, targets_TB)
        loss = self.objective(nll, output.dropped_TBD, output.raw_TBD)
        loss = loss + self.head.penalty(hidden_TBD)
        carried = [x.detach() for layer in output.state for x in layer]
        return loss, nll.detach(), hidden_TBD.detach(), *carried

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
