"""Measuring trained models.

The modules bring torch, which a report does without. So each of them loads when it is first used:
`from lmkit import evaluation` costs nothing, `evaluation.load.load_run(...)` imports torch.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what analyses use, for mypy
    from lmkit.evaluation import generate as generate
    from lmkit.evaluation import gradient_bottleneck as gradient_bottleneck
    from lmkit.evaluation import load as load
    from lmkit.evaluation import logits as logits
    from lmkit.evaluation import method as method
    from lmkit.evaluation import next_words as next_words
    from lmkit.evaluation import press_robustness as press_robustness
    from lmkit.evaluation import spectrum as spectrum
    from lmkit.evaluation import word_vectors as word_vectors
else:

    def __getattr__(name: str) -> ModuleType:
        if find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        return import_module(f"{__name__}.{name}")
