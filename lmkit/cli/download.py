"""Downloads a corpus from its public address and checks it: `lmkit download penn root=data`.

Files that are there already are kept.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import Command, Option
from lmkit.data.download import SOURCES, download
from lmkit.errors.user_error import require_folder

COMMAND = Command(
    "lmkit download",
    "CORPUS",
    (__doc__ or "").strip(),  # python -OO has none
    {
        "root": Option(
            "", "folder of the corpora; default: LMKIT_DATA if set, otherwise data", is_path=True
        )
    },
    most=1,
    choices=tuple(sorted(SOURCES)),
)


@ends_in_one_line("the same command fetches what is missing")
def main(arguments: Sequence[str] | None = None) -> None:
    (corpus,), given = COMMAND.read(sys.argv[1:] if arguments is None else arguments)
    place = given["root"] or os.path.expanduser(os.environ.get("LMKIT_DATA") or "data")
    require_folder("root", place)
    root = Path(place)
    folder = download(corpus, root, SOURCES)
    print(f"{folder} is complete. To use it: export LMKIT_DATA={shlex.quote(str(root.resolve()))}")
