"""Runs an experiment that needs no language model: `lmkit study mode_matching`.

Each file in conf/studies/, or in the same folder of the user's own configs, names a study.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lmkit import studies
from lmkit.cli.command_line import config_folders, first_sentence, run_named
from lmkit.cli.entry import CONFIGS, create, entry_point, plain_config
from lmkit.errors.user_error import UserError

USAGE = """\
lmkit study runs an experiment that needs no language model, and says of each claim of its sources
whether it holds.

usage: lmkit study STUDY [option=value ...]      lmkit study STUDY --help lists a study's options

"""


def main() -> None:
    """Runs the study that the first argument names."""
    sentences = _sentences(sys.argv[1:])
    run_named("study", sentences, _run, lambda: _list(sentences))


def _list(sentences: Mapping[str, str]) -> None:
    width = max(map(len, sentences))
    print(USAGE + "\n".join(f"  {name:{width}}  {line}" for name, line in sentences.items()))


def _run(name: str) -> None:
    @entry_point(f"studies/{name}", "the same command resumes")
    def run(config: DictConfig) -> None:
        options = plain_config(config)
        shared = {key: options.pop(key) for key in ("runs_dir", "seed", "threads")}
        progress_bar = options.pop("progress_bar")
        named = create({"_target_": options["_target_"], "_partial_": True}, name)
        kind = named.func if isinstance(named, partial) else None
        if not (isinstance(kind, type) and issubclass(kind, studies.study.SyntheticStudy)):
            raise UserError(f"{options['_target_']} is not derived from SyntheticStudy")
        overrides = HydraConfig.get().overrides.hydra
        search_path = [each for each in overrides if each.startswith("hydra.searchpath=")]
        for option in kind.head_options:
            options[option] = studies.head_options.head_sections(
                option, options[option], search_path
            )
        study = create({**options, "_convert_": "all"}, name)
        assert isinstance(study, studies.study.SyntheticStudy)
        started = studies.running.StudyRun(study, name=name, options=options, **shared)
        started.finish(progress_bar=progress_bar)
        studies.running.show(started.path)

    run()


def _sentences(arguments: list[str]) -> dict[str, str]:
    """The first sentence of each study's file, by name: ours and the user's own."""
    folders = [*config_folders(arguments), CONFIGS]
    files = [file for folder in folders for file in folder.glob("studies/*.yaml")]
    return {file.stem: first_sentence(file) for file in sorted(files, key=lambda file: file.stem)}
