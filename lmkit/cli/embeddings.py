"""The word vectors of runs against human judgement: `lmkit embeddings run=...`.

Spearman's rho on 13 word-similarity benchmarks, and the number of principal components that hold
most of the variance (Parthiban et al. 2021, figure 4, supplement, tables 3 and 13).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_count

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.evaluation.load import LoadedRun

SHARES = (0.75, 0.95)


@entry_point("embeddings")
def main(config: DictConfig) -> None:
    """Measures each run's vectors, and prints them side by side."""
    plain = plain_config(config)
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a folder, but is {plain['run']!r}")
    if plain["threads"] is not None:
        require_count("threads", plain["threads"])
    from lmkit.evaluation.each_run import each_run

    benchmarks = plain["benchmarks"]

    def analyse(run: LoadedRun) -> dict:
        folder = None if benchmarks is None else Path(benchmarks)
        return measure(run, folder, plain["data_root"])

    found = each_run(plain["run"], plain["data_root"], plain["threads"], analyse)
    _show(found)


def measure(run: LoadedRun, benchmarks: Path | None, data_root: str | None = None) -> dict:
    """Measures the input embedding, which is the decoder too where weights are tied, and writes it.

    Args:
        benchmarks: folder of the benchmarks; None: word_similarity beside the run's corpus, where
            there is one.
        data_root: where the corpora lie now, if not where the run found them.

    Raises: UserError when `benchmarks` is not that folder.
    """
    from torch import nn

    from lmkit.analyses.word_similarity import principal_components, read_benchmarks, similarity
    from lmkit.evaluation.each_run import write_analysis

    trunk = run.model.trunk
    word_map = getattr(trunk, "word_map", nn.Identity())  # of a head that shares the weight
    vectors_VE = word_map(trunk.embedding_weight).detach().cpu().numpy()
    vocabulary = {word: index for index, word in enumerate(run.data.corpus.vocabulary)}
    folder = benchmarks or _beside(run, data_root)
    read = {} if folder is None else read_benchmarks(folder)
    found = {
        "emb_dim": vectors_VE.shape[1],
        "word_similarity": {
            name: similarity(pairs, vocabulary, vectors_VE)._asdict()
            for name, pairs in read.items()
        },
        "principal_components": principal_components(vectors_VE, SHARES),
    }
    write_analysis(run, "embeddings", found)
    return found


def _beside(run: LoadedRun, data_root: str | None) -> Path | None:
    root = run.config["data"].get("root") if data_root is None else data_root
    folder = None if root is None else Path(root).expanduser() / "word_similarity"
    return folder if folder is not None and folder.is_dir() else None


def _show(found: dict[str, dict]) -> None:
    """A column for each run, then who wins how often where there are several."""
    from rich.console import Console
    from rich.table import Table

    from lmkit.analyses.word_similarity import BENCHMARKS, win_matrix

    table = Table(title="Spearman's ρ of human judgement and cosine; principal components")
    table.add_column(no_wrap=True)
    table.add_column("pairs skipped", justify="right")
    for name in found:
        table.add_column(name, justify="right", overflow="fold")
    sets = {name: content["word_similarity"] for name, content in found.items()}
    for benchmark in BENCHMARKS:
        values = [content.get(benchmark) for content in sets.values()]
        if any(values):
            known = next(value for value in values if value)
            table.add_row(benchmark, "{skipped} of {pairs}".format(**known), *map(_rho, values))
    for share in SHARES:
        counts = (c["principal_components"][f"{share:g}"] for c in found.values())
        table.add_row(f"components for {share:.0%}", "", *map(str, counts))
    console = Console()
    console.print(table)
    if not any(sets.values()):
        print("no word similarity: benchmarks=FOLDER says where the benchmarks are")
    elif len(found) > 1:
        rho = {run: {n: v["spearman"] for n, v in content.items()} for run, content in sets.items()}
        wins = Table(title="benchmarks on which the row's run has the higher ρ")
        for name in ("", *found):
            wins.add_column(name, overflow="fold")
        for name, row in win_matrix(rho).items():
            wins.add_row(name, *(str(row[other]) if other != name else "" for other in found))
        console.print(wins)


def _rho(value: dict | None) -> str:
    return "" if value is None or value["spearman"] is None else f"{value['spearman']:.4f}"
