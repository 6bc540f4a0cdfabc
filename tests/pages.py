"""README and the pages of the manual: their shell lines, and the files that they show whole."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"
MANUAL = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = (README, *MANUAL)

_FILE = re.compile(
    r"```(?:yaml|python)\n((?:# @package _global_\n)?# (\S+\.(?:yaml|py))\n.*?)```", re.DOTALL
)


def shell_lines(page: str) -> Iterator[str]:
    """The lines of its sh blocks, continued ones joined."""
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        yield from filter(None, block.replace("\\\n", " ").splitlines())


def lmkit_command(line: str) -> str | None:
    """`lmkit ...` of a shell line, without what starts it; None where the line is another's."""
    match = re.search(
        r"(?:^|^\.venv/bin/|PYTHONPATH=\S+ |srun \S+ |exec )(lmkit .*?)\"?$", line.strip()
    )
    return match[1].partition(" > ")[0] if match else None


def write_shown_files(folder: Path) -> None:
    """Writes the files that the pages show, whole; a first line of each says its name."""
    for page in PAGES:
        for content, name in _FILE.findall(page.read_text("utf-8")):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
