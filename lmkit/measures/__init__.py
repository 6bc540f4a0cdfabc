"""Measurements of a `Predictor`: its predictions, log P, logits and their gradients. The modules
import torch, so each loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what analyses use, for mypy
    from lmkit.measures import gradient_share as gradient_share
    from lmkit.measures import logit_histogram as logit_histogram
    from lmkit.measures import model_spectra as model_spectra
    from lmkit.measures import next_words as next_words
    from lmkit.measures import perplexity as perplexity
    from lmkit.measures import rank_robustness as rank_robustness
    from lmkit.measures import truncation as truncation
    from lmkit.measures import unargmaxable as unargmaxable
else:
    __getattr__ = modules_on_use(__name__)
