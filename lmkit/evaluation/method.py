"""Ways to predict a text after training: one contract for every method of `lmkit evaluate`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import product
from typing import ClassVar, NamedTuple, Self

from lmkit.data.windows import EvalWindows
from lmkit.errors.user_error import require_list
from lmkit.experiment.load import LoadedRun
from lmkit.measures.perplexity import Perplexity


class SearchPoint(NamedTuple):
    """A point of a search's grid, and the perplexity there."""

    options: dict[str, float]
    perplexity: float


class Method(ABC):
    """A way to predict a text with a trained model. Making one checks its options: its attributes,
    of which `lr_grid` has the values of `lr` that a search tries.
    """

    kind: ClassVar[str]  # the method's name
    length: int  # tokens of the windows that it reads; of a method that is searched
    in_one_column: ClassVar[bool] = True  # whether each word is predicted from all words before it

    @property
    def grid(self) -> dict[str, list[float]]:
        """The values that a search tries, by option; empty: nothing to search."""
        every = vars(self).items()
        return {name[:-5]: list(tried) for name, tried in every if name.endswith("_grid")}

    def points(self) -> Iterator[dict[str, float]]:
        """All combinations of the grid's values, by option."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def options(self) -> dict[str, object]:
        """The values with which it predicts."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_grid")}

    def at(self, options: Mapping[str, float]) -> Self:
        """The same method with other values of some options."""
        other = copy(self)
        vars(other).update(options)
        return other

    @abstractmethod
    def measure(self, run: LoadedRun, split: str) -> Perplexity:
        """Predicts all of a split."""

    def search(self, run: LoadedRun, windows: EvalWindows) -> list[SearchPoint]:
        """Predicts the windows with the values of each point of the grid."""
        raise NotImplementedError


def require_values(
    name: str, value: object, grid: Sequence[object], require: Callable[[str, object], object]
) -> None:
    """Raises UserError unless `require` takes an option's value and those of its grid."""
    require(f"method.{name}", value)
    require_list(f"method.{name}_grid", grid)
    for each in grid:
        require(f"method.{name}_grid", each)
