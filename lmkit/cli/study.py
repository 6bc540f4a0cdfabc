"""Runs an experiment that needs no language model: `lmkit study mode_matching`.

Each file in conf/studies/, or in the same folder of the user's own configs, names a study.
"""

from __future__ import annotations

import sys
from functools import partial

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lmkit import studies
from lmkit.cli.command_line import files_of, first_sentence, listed, run_named
from lmkit.cli.entry import create, entry_point, plain_config
from lmkit.errors.user_error import UserError

GROUP = "studies"
USAGE = """\
lmkit study runs an experiment that needs no language model, and says of each claim of its sources
whether it holds.

usage: lmkit study STUDY [option=value ...]      lmkit study STUDY --help lists a study's options

"""


def main() -> None:
    """Runs the study that the first argument names."""
    files = files_of(GROUP, sys.argv[1:])
    sentences = {name: first_sentence(file) for name, file in files.items()}
    run_named("study", sentences, _run, lambda: print(USAGE + listed(sentences)))


def _run(name: str) -> None:
    @entry_point(f"{GROUP}/{name}", "the same command resumes")
    def run(config: DictConfig) -> None:
        options = plain_config(config)
        shared = {key: options.pop(key) for key in ("runs_dir", "seed", "threads")}
        progress_bar = options.pop("progress_bar")
        named = create({"_target_": options["_target_"], "_partial_": True}, name)
        kind = named.func if isinstance(named, partial) else None
        if not (isinstance(kind, type) and issubclass(kind, studies.study.SyntheticStudy)):
            raise UserError(f"{options['_target_']} is not derived from SyntheticStudy")
        overrides = HydraConfig.get().overrides.hydra
        search = [each for each in overrides if each.startswith("hydra.searchpath=")]
        for option in kind.head_options:
            options[option] = studies.head_options.head_sections(option, options[option], search)
        study = create({**options, "_convert_": "all"}, name)
        assert isinstance(study, studies.study.SyntheticStudy)
        started = studies.running.StudyRun(study, name=name, options=options, **shared)
        started.finish(progress_bar=progress_bar)
        studies.running.show(started.path)

    run()
