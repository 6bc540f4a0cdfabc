"""Evaluation with the trained weights as they are."""

from lmkit.evaluation.method import Method
from lmkit.experiment.load import LoadedRun
from lmkit.measures.perplexity import Perplexity, perplexity


class Static(Method):
    """Predicts batches as validation does in training: only the state is carried."""

    kind = "static"
    in_one_column = False

    def measure(self, run: LoadedRun, split: str) -> Perplexity:
        return perplexity(run.model, run.data.eval_batches(split), f"{split} perplexity")
