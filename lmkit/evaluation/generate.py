"""Text, drawn word by word from a model.

Shapes: T length of the prompt, B texts, V vocabulary, k words to draw from.
"""

from collections.abc import Callable, Sequence

import torch

from lmkit.heads.predictor import exact_evaluation
from lmkit.training.language_model import LanguageModel


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    *,
    num_texts: int,
    length: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    advance: Callable[[], object],
) -> list[list[int]]:
    """Texts, as word indices, that continue the prompt, which is read from a zero state.

    Each word is drawn from softmax(log P / temperature) over the `top_k` likeliest words, over all
    words if None. Draws are made on the CPU, so that they do not depend on the device.

    Args:
        prompt: at least one word; the texts do not include it.
        length: words of each text.
        advance: called after each of the `length` words.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens_TB = torch.tensor(prompt, device=model.device).unsqueeze(1).repeat(1, num_texts)
    state, drawn = model.trunk.initial_state(num_texts), []
    for _ in range(length):
        with exact_evaluation(model):
            output = model.trunk(tokens_TB, state)
            log_p_BV = model.head.log_probs(model.head_input(output)[-1:]).double().cpu()
        state = output.state
        # less the largest, as a small temperature would make all of them infinite
        scores_BV = (log_p_BV - log_p_BV.amax(1, keepdim=True)) / temperature
        if top_k is not None and top_k < scores_BV.shape[1]:
            kept_Bk, words_Bk = scores_BV.topk(top_k)
            chosen_B1 = torch.multinomial(kept_Bk.softmax(1), 1, generator=generator)
            chosen_B1 = words_Bk.gather(1, chosen_B1)
        else:
            chosen_B1 = torch.multinomial(scores_BV.softmax(1), 1, generator=generator)
        drawn.append(chosen_B1)
        tokens_TB = chosen_B1.t().to(model.device)
        advance()
    texts: list[list[int]] = torch.cat(drawn, dim=1).tolist()
    return texts
