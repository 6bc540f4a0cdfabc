"""The trunk of training steps by `torch.compile`, whatever came before to the same bits.

PyTorch compiles anew for shapes that are new, and for all that follow: the code that a window meets
would depend on the windows before it, and a run that resumes has fewer of those. So the code is
made once, for the usual length of a window and with lengths left open; a window that it does not
take (that of a QRNN loops by powers of two) runs as written. Nor does code that other runs left in
PyTorch's cache take part.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError

Encode = Callable[..., tuple[Tensor, ...]]

STANCE = "eager_on_recompile"  # of what runs once the code is made


def compiled(
    encode: Encode, tokens_TB: Tensor, state: Sequence[Tensor], parameters: Sequence[nn.Parameter]
) -> Encode:
    """What maps a window and the states before it to tensors, compiled for any length.

    It is compiled here, which takes a minute and draws no random numbers.

    Args:
        encode: takes (T, B) token ids and the states; its first result has a gradient.
        tokens_TB: a window of the usual length.
        state: before it.
        parameters: that have gradients.

    Raises: UserError where PyTorch cannot compile it.
    """
    torch.compiler.reset()  # else another run of this process may have left code that fits
    made = torch.compile(encode, fullgraph=True, options={"fx_graph_cache": False})
    torch._dynamo.maybe_mark_dynamic(tokens_TB, 0)
    device = tokens_TB.device
    try:
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            warnings.catch_warnings(action="ignore"),  # that complex numbers are not fused
        ):
            first, *_ = made(tokens_TB, *state)
            torch.autograd.grad(first.sum(), parameters, allow_unused=True)
    except Exception as error:  # whatever the compiler and those below it raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"compile=true: PyTorch cannot compile the trunk: {reason}") from error

    def encode_any(*inputs: Tensor) -> tuple[Tensor, ...]:
        # the code is for the strides that new tensors have; states are views, or were loaded
        dense = [x.clone(memory_format=torch.contiguous_format) for x in inputs]
        with torch.compiler.set_stance(STANCE):
            return made(*dense)

    return encode_any
