"""A causal language model of `transformers`, read as a trunk before a head of lmkit.

What enters the model's output layer is the context, the layer's weight and bias are the decoder.
Whatever the model does to the logits after that layer is found by comparing them with h W' + b: a
factor goes into the contexts, a soft cap is a transform, anything else is refused.

The head trains what the model has, for `lmkit.measures.gradient_share`: no bias where the layer has
none, and a step moves h itself, not h times the factor.

Shapes: T tokens, n contexts that are measured, N contexts, D hidden size, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOutput, SingleContext
from lmkit.heads.predictor import HeadInput, Predictor, exact_evaluation
from lmkit.heads.transforms import Identity, SoftCap

CHECKED = 64  # contexts on which logits are compared
SAME = 1e-4  # of the largest value: rounding of float32 stays below, other functions do not


class ScaledContext(SingleContext):
    """The trunk's output times a number is the one context vector."""

    def __init__(self, in_dim: int, scale: float) -> None:
        super().__init__(in_dim)
        self.scale = scale

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        return super().forward(self.scale * hidden_TBD)


class PretrainedModel(Predictor):
    """The model as measurements read it, window by window, without a state between them.

    Args:
        body: a causal language model of `transformers`, in float32.
        head: over the weight of its output layer.
    """

    def __init__(self, body: nn.Module, head: Head) -> None:
        super().__init__()
        self.body, self.head = body, head

    def read(self, batch: Window, state: object) -> HeadInput:
        inputs_1T = batch.inputs_TB.T
        hidden_1TD = _run(self.body, inputs_1T, with_logits=False).hidden_1TD
        hidden_nD = hidden_1TD[0, -batch.num_targets :]
        return HeadInput(hidden_nD.unsqueeze(1), batch.targets_TB, None)

    @property
    def logits_are(self) -> str:
        """What the model's logits are, for readers."""
        has_bias = self.head.decoder_bias.requires_grad
        factor = "(h W' + b)" if has_bias else "h W'"
        if isinstance(self.head.transform, SoftCap):
            return f"{self.head.transform.cap:g} tanh({factor} / {self.head.transform.cap:g})"
        assert isinstance(self.head.mixture, ScaledContext)
        scale = self.head.mixture.scale
        return factor.strip("()") if scale == 1 else f"{scale:.6g} {factor}"


def pretrained_model(body: Any, tokens_T: Tensor) -> PretrainedModel:
    """Reads `body` as a trunk and a head, which is checked on the first of a text's tokens.

    Raises: UserError when it is no causal model, or its logits are something else than the output
        layer's, these times a number, or these under a soft cap that its configuration declares.
    """
    kind, layer = type(body).__name__, body.get_output_embeddings()
    if not isinstance(layer, nn.Linear):
        raise UserError(f"{kind} has no linear output layer, whose spectrum could be measured")
    with exact_evaluation(body):
        tokens_1T = tokens_T[:CHECKED].unsqueeze(0).to(layer.weight.device)
        seen = _run(body, tokens_1T, with_logits=True)
        _require_causal(body, tokens_1T, seen.hidden_1TD)
        head = _head(layer, Identity())
        linear_NV = head.logits(seen.hidden_1TD[0])
        own_NV = seen.logits_1TV[0]
        cap = body.config.get_text_config().to_dict().get("final_logit_softcapping")
        if cap and _same(own_NV, SoftCap(cap)(linear_NV)):
            return PretrainedModel(body, _head(layer, SoftCap(cap)))
        if _same(own_NV, linear_NV):
            return PretrainedModel(body, head)
        own, linear = own_NV.double(), linear_NV.double()
        # rounded: on any text the same, to the last bit
        scale = float(f"{(own * linear).sum() / linear.square().sum():.7g}")
        if _same(own_NV, scale * linear_NV):
            return PretrainedModel(body, _head(layer, Identity(), scale))
    raise UserError(
        f"the logits of {kind} are not h W' + b, not these times a number, and not under a soft "
        f"cap that its config.json declares: what its head does is unknown"
    )


class _Seen(NamedTuple):
    hidden_1TD: Tensor  # what entered the output layer
    logits_1TV: Tensor  # the model's own; of no token where they were not asked for


def _run(body: nn.Module, inputs_1T: Tensor, *, with_logits: bool) -> _Seen:
    """Runs a model. Without logits its output layer is handed no rows: they cost the most."""
    entered: list[Tensor] = []

    def hand_on(layer: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        entered.append(arguments[0])
        return None if with_logits else (arguments[0][:, :0], *arguments[1:])

    layer: Any = body.get_output_embeddings()  # type: ignore[operator]
    hook = layer.register_forward_pre_hook(hand_on)
    try:
        logits_1TV = body(input_ids=inputs_1T, use_cache=False).logits
    finally:
        hook.remove()
    if len(entered) != 1 or entered[0].shape[:2] != inputs_1T.shape:
        raise UserError(
            f"the output layer of {type(body).__name__} does not read one vector for each token"
        )
    return _Seen(entered[0], logits_1TV)


def _head(layer: nn.Linear, transform: nn.Module, scale: float = 1.0) -> Head:
    """A head that shares the output layer's weight."""
    num_words, dim = layer.weight.shape
    assert isinstance(layer.weight, nn.Parameter)
    parts = HeadParts(
        mixture=ScaledContext(dim, scale),
        transform=transform,
        word_counts_V=torch.zeros(num_words, dtype=torch.long),
        embedding_weight=layer.weight,
    )
    head = Head(parts).to(layer.weight.device)
    if layer.bias is None:
        head.decoder_bias.requires_grad_(False)
    else:
        head.decoder_bias.data.copy_(scale * layer.bias)
    return head


def _require_causal(body: nn.Module, tokens_1T: Tensor, hidden_1TD: Tensor) -> None:
    """Another last token must leave all contexts before it as they are."""
    others_1T = tokens_1T.clone()
    others_1T[0, -1] = 0 if tokens_1T[0, -1] != 0 else 1
    changed_1TD = _run(body, others_1T, with_logits=False).hidden_1TD
    if not _same(hidden_1TD[0, :-1], changed_1TD[0, :-1]):
        raise UserError(
            f"{type(body).__name__} is no causal language model: what it makes of a token depends "
            f"on those that follow, as in an encoder"
        )


def _same(values: Tensor, others: Tensor) -> bool:
    """Whether they differ by rounding alone. Raises: UserError when they are not finite."""
    if not bool(torch.isfinite(values).all()):
        raise UserError("the model's own values are not finite")
    if not values.numel():
        return True
    return bool((values - others).abs().max() <= SAME * values.abs().max())
