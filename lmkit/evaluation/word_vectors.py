"""A trained model's word vectors.

Shapes: V vocabulary, E embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.evaluation.load import LoadedRun, of_running_text


class WordVectors(NamedTuple):
    """The trunk's input embedding, which is the decoder too where weights are tied."""

    vocabulary: Sequence[str]
    vectors_VE: np.ndarray


def word_vectors(run: LoadedRun) -> WordVectors:
    """Raises: UserError when the run's model is of something else than running text."""
    model, data = of_running_text(run)
    # the map is that of a head that shares the weight
    vectors = model.trunk.word_map(model.trunk.embedding_weight)
    return WordVectors(data.corpus.vocabulary, vectors.detach().cpu().numpy())
