"""The sweeper as a plugin of Hydra's: found, light, and found too where an install hides it."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

SWEEPERS = "from hydra.core.plugins import Plugins\nfrom hydra.plugins.sweeper import Sweeper\n"
FOUND = "any(s.__name__ == 'LmkitSweeper' for s in Plugins.instance().discover(Sweeper))"

# as setuptools' editable installs may do: packages are found by a map, and in no folder of sys.path
# (an install that is there already is taken out first)
EDITABLE = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location

sys.path[:] = [
    entry
    for entry in sys.path
    if entry not in ("", {repository!r}) and not entry.startswith("__editable__")
]
sys.meta_path[:] = [
    finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")
]
PACKAGES = {{name: {repository!r} for name in ("lmkit", "hydra_plugins.lmkit")}}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in PACKAGES:
            folder = PACKAGES[name] + "/" + name.replace(".", "/")
            return spec_from_file_location(
                name, folder + "/__init__.py", submodule_search_locations=[folder]
            )


sys.meta_path.insert(0, Finder)
"""


def printed(code: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_hydra_finds_it_and_imports_nothing_heavy_for_it():
    heavy = "sys.modules.keys() & {'torch', 'pytorch_lightning', 'numpy', 'rich', 'lmkit'}"
    code = f"import sys\n{SWEEPERS}print({FOUND}, *({heavy}))"
    assert printed(code, REPOSITORY) == ["True"]


def test_a_command_makes_it_known_where_an_editable_install_hides_it(tmp_path):
    code = EDITABLE.format(repository=str(REPOSITORY)) + SWEEPERS + f"print({FOUND})\n"
    code += f"from lmkit.cli.entry import compose\ncompose('describe')\nprint({FOUND})\n"
    assert printed(code, tmp_path) == ["False", "True"]


def test_the_configurations_are_links_that_travel_with_the_package():
    for link, target in (("lmkit/conf", "conf"), ("conf/multirun_sweeps", "multirun_sweeps")):
        path = REPOSITORY / link
        assert path.is_symlink()
        assert not path.readlink().is_absolute()
        assert path.resolve() == REPOSITORY / target
