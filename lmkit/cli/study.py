"""Runs an experiment that needs no language model: `lmkit study mode_matching`.

Each file in conf/studies/, or in the same folder of the user's own configs, names a study.
"""

import sys
from pathlib import Path

from omegaconf import DictConfig

from lmkit.cli.command_line import files_of, first_sentence, listed, run_named
from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import require_folder, require_seed, require_threads
from lmkit.experiment.make import make

GROUP = "studies"
USAGE = """\
lmkit study runs an experiment that needs no language model, prints a summary, and writes all rows
as CSV and a figure.

usage: lmkit study STUDY [option=value ...]      lmkit study STUDY --help lists a study's options

"""


def main() -> None:
    files = files_of(GROUP, sys.argv[1:])
    sentences = {name: first_sentence(file) for name, file in files.items()}
    run_named("study", sentences, _run, lambda: print(USAGE + listed(sentences)))


def _run(name: str) -> None:
    @entry_point(f"{GROUP}/{name}")
    def run(config: DictConfig) -> None:
        from lmkit.studies.study import SyntheticStudy, finish  # brings torch

        options = plain_config(config)
        out, seed, threads = (options.pop(key) for key in ("runs_dir", "seed", "threads"))
        require_folder("runs_dir", out)
        require_seed("seed", seed)
        require_threads(threads)
        study = make(options, "", SyntheticStudy)
        finish(study, Path(out, name), seed=seed, threads=threads)

    run()
