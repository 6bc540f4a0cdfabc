"""Text sampled from runs, word by word, starting from a zero state."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.presentation.progress import progress_bar


class SampledTexts(Record):
    """Texts, and how they were drawn."""

    temperature: float
    top_k: int | None
    seed: int
    length: int
    prompt: str | None
    texts: list[str] = Field(repr=False)


@dataclass(kw_only=True, eq=False)
class Samples(Analysis):
    """Texts that continue a prompt."""

    name, record, title = "samples", SampledTexts, "Generated text"

    prompt: str | None  # words to continue; None: the start of a sentence
    texts: int  # how many
    length: int  # words of each, or subwords
    temperature: float  # of the distribution; below 1 the likelier words become likelier still
    top_k: int | None  # how many of the likeliest words to sample from; None: all
    seed: int  # of the draws

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str | None):
            raise UserError(f"prompt must be a text, but is {self.prompt!r}; quote it")
        require_count("texts", self.texts)
        require_count("length", self.length)
        require_positive("temperature", self.temperature)
        if self.top_k is not None:
            require_count("top_k", self.top_k)
        require_count("seed", self.seed, 0)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.evaluation.generate import generate

        model, data = subject.language_model
        tokenizer = subject.loaded_run.source.tokenizer_by(data.corpus.vocabulary)
        # the start of a sentence comes after the end of another
        start: list[int] = []
        if self.prompt:
            start = tokenizer.ids("prompt", tokenizer.within_line(self.prompt))
        with progress_bar() as progress:
            task = progress.add_task(f"{subject.name}: words", total=self.length)
            drawn = generate(
                model,
                start or [tokenizer.line_end()],
                num_texts=self.texts,
                length=self.length,
                temperature=self.temperature,
                top_k=self.top_k,
                seed=self.seed,
                advance=lambda: progress.advance(task),
            )
        return Recorded(
            SampledTexts(
                temperature=self.temperature,
                top_k=self.top_k,
                seed=self.seed,
                length=self.length,
                prompt=self.prompt,
                texts=[tokenizer.text([*start, *text]) for text in drawn],
            )
        )

    def lines(self, record: SampledTexts) -> Sequence[str]:
        return [f"\ntext {number}\n{text}" for number, text in enumerate(record.texts, 1)]
