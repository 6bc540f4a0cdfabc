"""A text as a pretrained model reads it: tokens of the model's tokenizer, in overlapping windows.

Each window predicts what the windows before it have not.

Shapes: T tokens that a window reads, n of them contexts that it measures, P special tokens that
begin it; one column, B = 1.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch

from lmkit.data.subwords import Subwords
from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError, require_count

MOST = 1024  # tokens per window, unless the user asks for more


def window_and_stride(
    window: int | None,
    stride: int | None,
    longest: int | None,
    prefix: Sequence[int],
    section: str = "",
) -> tuple[int, int]:
    """How many tokens a model reads at a time, and how many the window moves.

    Args:
        window, stride: the options; None: the model's maximum, at most `MOST`; half the window.
        longest: the model's maximum; None: it has none.
        prefix: the tokens that every window begins with.
        section: of the options, for messages: "trunk.".

    Raises: UserError naming the option.
    """
    size = min(longest or MOST, MOST) if window is None else window
    require_count(f"{section}window", size, 2)
    if longest is not None and size > longest:
        raise UserError(
            f"{section}window={size} is more than the {longest} tokens that the model can read"
        )
    step = max(1, size // 2) if stride is None else stride
    require_count(f"{section}stride", step)
    most = size - len(prefix)
    if step > most:
        begins = f" that begin with {len(prefix)} special tokens" if len(prefix) > 1 else ""
        raise UserError(
            f"{section}stride={step} must be at most {most} with windows of {size}{begins}"
        )
    return size, step


class StrideWindows:
    """Windows of at most `window` tokens that end `stride` tokens apart.

    Every token but the first is predicted once, in order: those of the first window from all that
    stands before them, all others from at least window - stride + 1 tokens. How many depends only
    on the token's position, not on what follows it. The targets (n, 1) of a window follow the last
    n of its inputs.

    Args:
        tokens: of the text, after the last token of the prefix where there is one.
        window: tokens that the model reads at a time.
        stride: tokens that each window adds.
        prefix: the P tokens that every window begins with, in the place of its first ones.

    Raises: UserError for a text with nothing to predict.
    """

    def __init__(
        self, tokens: np.ndarray, window: int, stride: int, prefix: Sequence[int] = ()
    ) -> None:
        if len(tokens) < 2:
            raise UserError(f"a text needs two tokens to predict one: it has {len(tokens)}")
        self.window, self.stride, self.prefix = window, stride, tuple(prefix)
        self._prefix_P = torch.tensor(self.prefix, dtype=torch.int64)
        text = torch.from_numpy(np.asarray(tokens, dtype=np.int64))
        self._stream = torch.cat([self._prefix_P[:-1], text])

    @property
    def num_targets(self) -> int:
        """Predicted tokens: all but the first, and the prefix."""
        return len(self._stream) - max(1, len(self.prefix))

    def __len__(self) -> int:
        return 1 + -(-max(0, len(self._stream) - 1 - self.window) // self.stride)

    def __iter__(self) -> Iterator[Window]:
        last = len(self._stream) - 1
        done = max(1, len(self.prefix))  # tokens that need no prediction, or have one
        for index in range(len(self)):
            start = index * self.stride
            end = min(start + self.window, last)
            inputs_T = self._stream[start:end].clone()
            inputs_T[: len(self.prefix)] = self._prefix_P
            targets_n = self._stream[done : end + 1]
            tokens = inputs_T.unsqueeze(1), targets_n.unsqueeze(1)
            yield Window(*tokens, end - start, index)
            done = end + 1


class TokenizedText:
    """A text, cut once.

    Args:
        text: as its file holds it.
        tokenizer: of the model.
    """

    def __init__(self, text: str, tokenizer: Subwords) -> None:
        self.text, self.tokenizer = text, tokenizer
        self.prefix = tokenizer.prefix
        self.ids: np.ndarray = tokenizer.encode(text)
        # what is predicted first follows the last token of the prefix
        self.tokens: np.ndarray = np.concatenate(
            [np.array(self.prefix[-1:], dtype=np.int64), self.ids]
        )

    @cached_property
    def lost(self) -> str | None:
        """Why bits per byte would be those of another text; None where all of it is kept."""
        found = self.tokenizer.lost(self.text, self.ids.tolist())
        return None if found is None else f"the tokenizer does not keep the text: {found}"

    def num_bytes(self, num_contexts: int) -> int | None:
        """UTF-8 bytes of the text up to the last token that the first contexts predict.

        None where the tokens do not keep the text.
        """
        if self.lost is not None:
            return None
        if num_contexts == len(self.tokens) - 1:
            return len(self.text.encode())
        count = num_contexts + (not self.prefix)  # tokens of the text
        return len(self.text[: self.tokenizer.ends(self.text)[count - 1]].encode())
