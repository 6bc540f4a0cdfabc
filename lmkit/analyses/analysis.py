"""The contract of an analysis: one question about finished runs, answered in one module.

The module holds what is measured, its tables, and its section of the report.
`conf/analyses/<name>.yaml` names its class and holds its options with their defaults. The command
line and the report find it there; nothing lists it. It measures by way of `from lmkit import
measures`, which imports torch only once it is used: the report imports analyses without torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from matplotlib.figure import Figure

from lmkit import experiment, pretrained
from lmkit.comparison.facts import Study
from lmkit.comparison.published_runs import Published, nothing_published
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Table
from lmkit.runs.folder import RunFolder

Content = dict[str, Any]  # plain data, as JSON holds it


class MeasuredRun(NamedTuple):
    """A run and what was measured of it, as stored in its folder."""

    folder: RunFolder
    content: Content


class Analysis(ABC):
    """A question, with its options; making one checks them.

    The constructor takes the options of its YAML file by their names, and raises UserError for a
    value that is wrong.

    What is stored of a run is what `measure` returns, preceded by fields that every analysis has:
    `schema_version`, `kind` (the analysis's name), `checkpoint` and `averaged` (whether its weights
    are averages). All other methods get the whole.
    """

    name: ClassVar[str]  # of the command, of conf/analyses/<name>.yaml and analysis/<name>.json
    schema_version: ClassVar[int] = 1  # raised when what `measure` returns changes
    # A NamedTuple or dataclass of what its section reads, whose types a stored file must have
    form: ClassVar[type | None] = None
    order: ClassVar[int] = 1000  # order of its section on the page
    takes_dialogue: ClassVar[bool] = False  # whether dialogue models can be measured too
    checkpoint: str = "best"  # which of a run's checkpoints is loaded
    # What was published, by the name of the measured run; set by the command.
    published_of_run: Callable[[str], Published | None] = staticmethod(nothing_published)

    def stored(self, folder: RunFolder) -> Content | None:
        """What the run's folder holds already; called before the run is loaded."""
        return None

    @abstractmethod
    def measure(self, run: experiment.load.LoadedRun) -> Content:
        """Measures one run; what it returns is stored in the run's folder.

        It writes what JSON cannot hold, such as singular values, into that folder itself.

        Raises: UserError saying why the run cannot be measured.
        """

    def measure_pretrained(
        self, loaded: pretrained.loading.LoadedPretrained, text: str, folder: RunFolder
    ) -> Content:
        """Measures one pretrained model, for an analysis whose YAML has /pretrained in its
        defaults; what it returns is stored as what `measure` returns.

        Args:
            text: the name of the text that the model reads.
            folder: for further files.

        Raises: UserError saying why the model cannot be measured.
        """
        raise UserError(f"lmkit {self.name} measures only runs of lmkit")

    def stem(self, content: Content) -> str:
        """The name, without .json, of the file in analysis/ that holds `content`."""
        return self.name

    @abstractmethod
    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        """What the terminal shows of the runs that were just measured, by their names."""

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        """Lines that follow the tables on the terminal."""
        return []

    def figures(self, measured: Sequence[MeasuredRun], folder: Path) -> dict[Path, Figure]:
        """Figures of the runs that were just measured, by the SVG files that they become.

        Args:
            folder: for a figure of several runs.
        """
        return {}

    @classmethod
    def sections(cls, study: Study, files: Files) -> Sequence[Section]:
        """What the report says of the runs of one corpus, as they were measured."""
        return []
