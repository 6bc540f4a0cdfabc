"""A small language model of any trunk and head.

Shapes: N contexts, V vocabulary.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lmkit.data.corpus import TextSplits
from lmkit.data.windows import Batch
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.training.language_model import LanguageModel
from lmkit.training.objective import RegularizedNLL
from lmkit.training.schedule import WindowLength


def head_parts(
    mixture: Mixture,
    transform: nn.Module,
    num_words: int,
    weight: nn.Parameter | None = None,
    **options: object,
) -> HeadParts:
    """Parts of a head that shares `weight`, if any; `options` are those of every head."""
    return HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=torch.zeros(num_words),
        embedding_weight=weight,
        **options,
    )


def tied_head(trunk: nn.Module, mixture: Mixture, transform: nn.Module, **options: object) -> Head:
    """A plain head whose decoder shares the trunk's embedding."""
    weight = trunk.embedding_weight
    return Head(head_parts(mixture, transform, len(weight), weight, **options))


def language_model(
    trunk: nn.Module,
    head: Head,
    *,
    objective: RegularizedNLL | None = None,
    bptt: int = 10,
    transform_lr: float = 1.0,
    **sgd: object,
) -> LanguageModel:
    """Without regularisation, if no objective is given; `sgd` are options of the optimizer."""
    return LanguageModel(
        trunk=trunk,
        head=head,
        objective=objective or RegularizedNLL(0, 0),
        optimizer=partial(torch.optim.SGD, **{"lr": 1.0} | sgd),
        schedule=WindowLength(bptt),
        transform_lr=transform_lr,
    )


def walk(num_words: int, *ends: int) -> TextSplits:
    """Three splits of a text that can be learnt: the next word is near the last one."""
    steps = np.random.RandomState(0).randint(-2, 3, size=ends[-1]).cumsum() % num_words
    return TextSplits(tuple(map(str, range(num_words))), *np.split(steps, ends[:-1]))


def log_prob_matrix(model: Predictor, batches: Iterable[Batch]) -> Tensor:
    """Log P of all contexts (N, V), whole batches at a time."""
    with exact_evaluation(model):
        return torch.cat([model.head.log_probs(hidden) for hidden, _ in model.head_inputs(batches)])
