"""The study: its next runs, its kept runs, its texts.

    python docs/study/study.py next RUNS      prints the commands that rules.md still asks for, by
                                              what has finished in RUNS
    python docs/study/study.py keep RUNS      copies what has finished into runs/, and of trunks
                                              their best.ckpt
    python docs/study/study.py compare RUNS   says whether runs trained anew in RUNS have the same
                                              digits as those kept
    python docs/study/study.py losses RUNS    keeps the loss of each test token of runs whose
                                              primary contrasts rules.md names
    python docs/study/study.py contrasts RUNS prints these contrasts
    python docs/study/study.py write          writes the texts from their templates, and the figures

Everything else about the runs is `lmkit report runs=docs/study/runs`.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_text

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from contrasts import contrasts, contrasts_table, measure_losses, over_trunks  # noqa: E402
from drawing import by_head, by_result, by_used_rank  # noqa: E402
from keeping import compare, keep  # noqa: E402
from rules import asked_for, rules  # noqa: E402
from texts import at_best_rate, read, told  # noqa: E402

KEPT, FIRST = FOLDER / "runs", FOLDER / "first"
PROJECT = FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- docs/study/first_screen.template -->\n", "<!-- end -->\n"


def written(kept: pd.DataFrame) -> dict[Path, str]:
    """The texts and the figures of these runs, by the files that have them."""
    known = told(kept) | {"contrasts": contrasts_table(contrasts(kept, rules()))}
    known["over_trunks"] = over_trunks(kept)
    return {
        FOLDER / "figures/results.svg": by_result(kept),
        FOLDER / "figures/heads.svg": by_head(kept),
        FOLDER / "figures/used_rank.svg": by_used_rank(kept),
        FOLDER / "README.md": filled(FOLDER / "README.template.md", known),
        PROJECT: with_first_screen(PROJECT.read_text("utf-8"), known),
    }


def filled(template: Path, known: dict[str, Any]) -> str:
    """A template with values in place of what names them; ends where one is unknown."""
    try:
        return template.read_text("utf-8").format(**known)
    except (KeyError, ValueError) as error:
        sys.exit(f"error: {template} names a value that the runs do not have: {error}")


def with_first_screen(readme: str, known: dict[str, Any]) -> str:
    """The project's README with what the study found between its two comments."""
    before, begins, rest = readme.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not ends:
        sys.exit(f"error: {PROJECT} lacks the line {BEGINS.strip()} or, after it, {ENDS.strip()}")
    return f"{before}{begins}{filled(FOLDER / 'first_screen.template', known)}{ends}{after}"


def drop_spectra() -> None:
    """Takes out the spectra of runs at rates that no text or figure has."""
    kept = read(KEPT)
    heads = kept[kept["head.decoder_rank"].isna() & kept["trunk_name"].notna()]
    for folder in heads["folder"].drop(at_best_rate(heads).index):
        shutil.rmtree(Path(folder) / "spectra", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("next", "keep", "compare", "losses", "contrasts"):
        commands.add_parser(name).add_argument("runs", type=Path)
    commands.add_parser("write")
    args = parser.parse_args()
    if args.command == "next":
        print("\n".join(asked_for(args.runs)))
    elif args.command == "keep":
        keep(args.runs, KEPT)
        drop_spectra()
    elif args.command == "losses":
        measure_losses(args.runs)
    elif args.command == "contrasts":
        print(contrasts(read(args.runs), rules()).to_string(index=False))
    elif args.command == "compare":
        compare((KEPT, FIRST / "runs"), args.runs)
    else:
        for path, text in written(read(KEPT)).items():
            replace_text(path, text)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
