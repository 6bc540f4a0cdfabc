"""The faults that a campaign draws, and the moments at which it does them."""

import errno
import signal
from random import Random
from typing import NamedTuple

from tests.faults.interposer import ANY, Action, Control, Kind

SIGNALS = {"SIGKILL": 9, "SIGTERM": 15, "SIGHUP": 1, "SIGSTOP": 19}
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS}
TORN, FLIPPED = "torn write", "flipped bit"
NAMES = (*SIGNALS, *ERRORS, TORN, FLIPPED)

_KINDS = (Kind.OPEN, Kind.READ, Kind.WRITE, Kind.FSYNC, Kind.LINK, Kind.RENAME, Kind.UNLINK)
_CONCERNED = {  # which calls can fail so
    "ENOSPC": (Kind.OPEN, Kind.WRITE, Kind.FSYNC, Kind.LINK, Kind.RENAME),
    "EIO": (*_KINDS, Kind.TRUNCATE),
    "EROFS": (Kind.OPEN, Kind.WRITE, Kind.LINK, Kind.RENAME, Kind.UNLINK, Kind.TRUNCATE),
    TORN: (Kind.WRITE,),
}


class Fault(NamedTuple):
    """One fault of one process."""

    name: str  # of NAMES
    kind: Kind | None  # of the call before which it comes; None: at a moment in time
    where: float  # in [0, 1): of the calls of that kind, or of the undisturbed run's time
    lasting: bool  # of errors: all later calls fail too
    share: int  # of a torn write, in 1/1000

    def __str__(self) -> str:
        when = f"at {self.where:.0%} of the time"
        if self.kind is not None:
            when = f"at {self.where:.0%} of its calls of {self.kind.name.lower()}"
        return f"{self.name} {when}{', lasting' * self.lasting}"

    @property
    def signal(self) -> int | None:
        """What the process gets, of faults that are signals; a flipped bit follows a kill."""
        return signal.SIGKILL if self.name == FLIPPED else SIGNALS.get(self.name)

    @property
    def is_taken_over(self) -> bool:
        return self.name == "SIGSTOP"

    def arm(self, control: Control, counts: dict[Kind, int]) -> None:
        """Has the fault come at its call; `counts` are those of the undisturbed run."""
        if self.kind is None:
            return
        control.kind, control.nth = self.kind, 1 + int(self.where * counts[self.kind])
        self._set(control)

    def strike(self, control: Control) -> None:
        """Has the next call that it concerns fail: a fault in time that is no signal."""
        control.kind = ANY
        self._set(control)

    def _set(self, control: Control) -> None:
        concerned = _CONCERNED.get(self.name, _KINDS)
        control.concerned = sum(1 << kind for kind in concerned)
        control.share, control.lasting = self.share, self.lasting
        control.value = self.signal or ERRORS.get(self.name, errno.ENOSPC)
        is_torn = self.name == TORN
        # last: from here on the fault may come
        control.action = Action.TEAR if is_torn else Action.SIGNAL if self.signal else Action.FAIL


def draw(random: Random, *, counted: bool = False) -> list[Fault]:
    """The faults of the processes that type a line one after another, mostly one.

    With `counted` their moments are calls alone, which a busy machine does not move.
    """
    number = random.choices((1, 2, 3), (6, 3, 1))[0]
    faults = [_draw(random, counted) for _ in range(number)]
    takeovers = [fault for fault in faults if fault.is_taken_over]
    return takeovers[:1] or faults  # one takes over, then the line has finished


def _draw(random: Random, counted: bool) -> Fault:
    name = random.choice(NAMES)
    kinds = _CONCERNED.get(name, _KINDS)
    kind = random.choice(kinds) if random.random() < 0.7 or counted else None
    if kind == Kind.TRUNCATE:
        kind = Kind.WRITE if counted else None
    lasting = name in (*ERRORS, TORN) and random.random() < 0.5
    # mostly in the later part of a run, which has averages, a best epoch and rows to lose
    where = random.uniform(0.45, 0.9) if random.random() < 0.6 else random.random()
    return Fault(name, kind, where, lasting, random.randrange(1000))
