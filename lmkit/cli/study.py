"""Runs one experiment of the bottleneck in isolation: `lmkit study mode_matching`."""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config


@entry_point("synthetic")
def _run(config: DictConfig) -> None:
    """Composes, then hands over; torch is imported only now, so that --help is quick."""
    plain = plain_config(config)
    from lmkit.studies.study import run

    run(plain)


def main() -> None:
    """Reads a first bare word as the study's name."""
    sys.argv[1:] = with_name(sys.argv[1:])
    _run()


def with_name(arguments: list[str]) -> list[str]:
    """The arguments with a first bare word read as the study's name."""
    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        return [f"study={arguments[0]}", *arguments[1:]]
    return arguments
