"""Measuring trained models.

Most of its modules import torch, so each of them loads when it is first used.
"""

from typing import TYPE_CHECKING

from lmkit import modules_on_use

if TYPE_CHECKING:  # what analyses and commands use, for mypy
    from lmkit.evaluation import conclusion as conclusion
    from lmkit.evaluation import full_run as full_run
    from lmkit.evaluation import generate as generate
    from lmkit.evaluation import gradient_bottleneck as gradient_bottleneck
    from lmkit.evaluation import load as load
    from lmkit.evaluation import logits as logits
    from lmkit.evaluation import method as method
    from lmkit.evaluation import next_words as next_words
    from lmkit.evaluation import press_robustness as press_robustness
    from lmkit.evaluation import pretrained as pretrained
    from lmkit.evaluation import pretrained_checkpoints as pretrained_checkpoints
    from lmkit.evaluation import pretrained_statistics as pretrained_statistics
    from lmkit.evaluation import spectrum as spectrum
    from lmkit.evaluation import text_perplexity as text_perplexity
    from lmkit.evaluation import word_vectors as word_vectors
else:
    __getattr__ = modules_on_use(__name__)
