"""Writes text with a run: `lmkit generate run=FOLDER`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_count, require_positive

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.evaluation.load import LoadedRun


@entry_point("generate")
def main(config: DictConfig) -> None:
    """Writes texts with each run, and prints them."""
    plain = plain_config(config)
    _check(plain)
    from rich.console import Console
    from rich.markup import escape

    from lmkit.evaluation.each_run import each_run

    found = each_run(
        plain["run"], plain["data_root"], plain["threads"], lambda run: write(run, plain)
    )
    console = Console()
    for name, texts in found.items():
        for number, text in enumerate(texts, 1):
            console.print(f"\n[bold]{escape(name)}, text {number}[/]")
            console.print(escape(text), highlight=False)


def write(run: LoadedRun, plain: dict) -> list[str]:
    """The texts of one run, its lines where the model ends sentences."""
    from lmkit.data.corpus import EOS
    from lmkit.evaluation.each_run import write_analysis
    from lmkit.evaluation.generate import generate
    from lmkit.evaluation.next_words import known_words
    from lmkit.evaluation.rank import progress_bar

    vocabulary = run.data.corpus.vocabulary
    # the start of a sentence comes after the end of another
    said = plain["prompt"] or EOS
    prompt = known_words("prompt", said, vocabulary)
    with progress_bar() as progress:
        task = progress.add_task(f"{run.folder.path.name}: words", total=plain["length"])
        drawn = generate(
            run.model,
            prompt,
            plain["texts"],
            plain["length"],
            plain["temperature"],
            plain["top_k"],
            plain["seed"],
            lambda: progress.advance(task),
        )
    start = said.split() if plain["prompt"] else []
    texts = [_text([*start, *(vocabulary[word] for word in text)], EOS) for text in drawn]
    options = ("temperature", "top_k", "seed", "length", "prompt")
    write_analysis(run, "samples", {**{name: plain[name] for name in options}, "texts": texts})
    return texts


def _text(words: list[str], end_of_line: str) -> str:
    return " ".join("\n" if word == end_of_line else word for word in words).replace(" \n ", "\n")


def _check(plain: dict) -> None:
    """Raises: UserError naming an option that is wrong."""
    require_positive("temperature", plain["temperature"])
    for option in ("texts", "length"):
        require_count(option, plain[option])
    require_count("seed", plain["seed"], 0)
    for option in ("top_k", "threads"):
        if plain[option] is not None:
            require_count(option, plain[option])
    for option in ("run", "prompt"):
        if not isinstance(plain[option], str | None):
            raise UserError(f"{option} must be a text, but is {plain[option]!r}; quote it")
