"""The sweeper as a plugin of Hydra's: found, light, and found too where an install hides it."""

import subprocess
import sys

from tests.conftest import REPOSITORY

SWEEPERS = "from hydra.core.plugins import Plugins\nfrom hydra.plugins.sweeper import Sweeper\n"
FOUND = "any(s.__name__ == 'LmkitSweeper' for s in Plugins.instance().discover(Sweeper))"

# as the installs do that find packages by a map, in no folder of sys.path
HIDDEN = "import hydra_plugins.lmkit\nhydra_plugins.__path__ = []\n"


def printed(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_hydra_finds_it_and_imports_nothing_heavy_for_it():
    heavy = "sys.modules.keys() & {'torch', 'pytorch_lightning', 'numpy', 'rich', 'lmkit'}"
    code = f"import sys\n{SWEEPERS}print({FOUND}, *({heavy}))"
    assert printed(code) == ["True"]


def test_a_command_makes_it_known_where_an_editable_install_hides_it():
    code = HIDDEN + SWEEPERS + f"print({FOUND})\n"
    code += f"from lmkit.cli.entry import compose\ncompose('describe')\nprint({FOUND})\n"
    assert printed(code) == ["False", "True"]


def test_the_configurations_are_links_that_travel_with_the_package():
    for link, target in (("lmkit/conf", "conf"), ("conf/multirun_sweeps", "multirun_sweeps")):
        path = REPOSITORY / link
        assert path.is_symlink()
        assert not path.readlink().is_absolute()
        assert path.resolve() == REPOSITORY / target
