"""Text sampled from runs, word by word, starting from a zero state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lmkit import evaluation, experiment
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.one_per_head import one_per_head
from lmkit.comparison.cells import listed
from lmkit.comparison.facts import Study
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.presentation.progress import progress_bar
from lmkit.presentation.section import Passage, Section
from lmkit.presentation.tables import Table

_TEXTS = 2  # of each head there


class _Stored(NamedTuple):
    texts: list[str]
    temperature: float | None = None
    top_k: int | None = None
    seed: int | None = None


class Samples(Analysis):
    """Texts that continue a prompt.

    Args:
        prompt: words to continue; None: the start of a sentence.
        texts: how many.
        length: words of each, or subwords.
        temperature: of the distribution; below 1 the likelier words become likelier still.
        top_k: how many of the likeliest words to sample from; None: all.
        seed: of the draws.
    """

    name, form = "samples", _Stored
    order = 100

    def __init__(
        self,
        *,
        prompt: str | None,
        texts: int,
        length: int,
        temperature: float,
        top_k: int | None,
        seed: int,
    ) -> None:
        if not isinstance(prompt, str | None):
            raise UserError(f"prompt must be a text, but is {prompt!r}; quote it")
        require_count("texts", texts)
        require_count("length", length)
        require_positive("temperature", temperature)
        if top_k is not None:
            require_count("top_k", top_k)
        require_count("seed", seed, 0)
        self.prompt, self.num_texts, self.length = prompt, texts, length
        self.temperature, self.top_k, self.seed = temperature, top_k, seed

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        model, data = experiment.load.as_language_model(run)
        tokenizer = run.source.tokenizer_by(data.corpus.vocabulary)
        # the start of a sentence comes after the end of another
        start: list[int] = []
        if self.prompt:
            start = tokenizer.ids("prompt", tokenizer.within_line(self.prompt))
        prompt = start or [tokenizer.line_end()]
        with progress_bar() as progress:
            task = progress.add_task(f"{run.folder.path.name}: words", total=self.length)
            drawn = evaluation.generate.generate(
                model,
                prompt,
                num_texts=self.num_texts,
                length=self.length,
                temperature=self.temperature,
                top_k=self.top_k,
                seed=self.seed,
                advance=lambda: progress.advance(task),
            )
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "seed": self.seed,
            "length": self.length,
            "prompt": self.prompt,
            "texts": [tokenizer.text([*start, *text]) for text in drawn],
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        return []

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        return [
            f"\n{name}, text {number}\n{text}"
            for name, content in contents.items()
            for number, text in enumerate(content["texts"], 1)
        ]

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        """The first texts of one run per head."""
        contents, note, without = one_per_head(study, files, cls)
        passages = [
            Passage(f"{label}: {_how(content)}", str(text))
            for label, content in contents.items()
            for text in content["texts"][:_TEXTS]
        ]
        how = "lmkit samples run=FOLDER"
        missing = [f"no samples.json: {listed(without)}: {how}"] if without else []
        return [Section("samples", "Generated text", f"One run per head.{note}", passages, missing)]


def _how(content: Content) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {content[name]}"
        for name in ("temperature", "top_k", "seed")
        if content.get(name) is not None
    )
