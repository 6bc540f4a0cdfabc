"""A trained model's word vectors.

Shapes: V vocabulary, E embedding.
"""

from __future__ import annotations

import numpy as np

from lmkit.trunk.trunk import Trunk


def word_vectors(trunk: Trunk) -> np.ndarray:
    """The trunk's input embedding (V, E), which is the decoder too where weights are tied."""
    # the map is that of a head that shares the weight
    vectors_VE: np.ndarray = trunk.word_map(trunk.embedding_weight).detach().cpu().numpy()
    return vectors_VE
