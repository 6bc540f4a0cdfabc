"""The trunk of training steps by `torch.compile`, with the same bits whatever ran before.

PyTorch recompiles for new shapes, so the code for a window would depend on the windows before it,
of which a resumed run has fewer. So the code is compiled once, for the usual window length and with
dynamic lengths; a window that it does not fit (a QRNN's code loops by powers of two) runs eagerly.
Code that other runs left in PyTorch's cache is not used.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError

Encode = Callable[..., tuple[Tensor, ...]]

STANCE = "eager_on_recompile"  # of what runs once the code is compiled


def compiled(
    encode: Encode, tokens_TB: Tensor, state: Sequence[Tensor], parameters: Sequence[nn.Parameter]
) -> Encode:
    """`encode`, compiled for windows of any length.

    Compiling happens here, takes a minute and draws no random numbers.

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
