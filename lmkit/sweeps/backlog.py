"""The points that one process is still to train, beside others that may train them too.

Nothing is agreed upon but files. A run's lock says who trains it, and its result that it has
finished. In the sweep's folder failed attempts are counted, and a claim says who is at an attempt,
from before it starts until it is counted. So any number of processes on any number of nodes share
a sweep. One that finds nothing to train looks at a few of the points that others hold, since their
processes may die, and looks less and less often while nothing changes.
"""

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lmkit.errors.user_error import UserError, is_denied, is_full, may_pass
from lmkit.runs.holder import Holder, this_process
from lmkit.runs.lock import Locks
from lmkit.runs.retention import tidy_all
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder

LOOK_AGAIN_S = 3.0  # until the first look at what others hold; then longer, up to
LOOK_SELDOM_S = 30.0
LOOKS = 10  # locks that are read in one look at what others hold
FAILURES = 2  # in a row, after which a slot pauses while others train, each time for longer
# where points may be at fault themselves; where they may not; once any has trained
LONGEST_PAUSES_S = 8, 256, 3600
MOST_UNREAD = 20  # looks at what a file server cannot read for now, before it counts as damaged

Say = Callable[[str], None]


@dataclass(eq=False)
class Waiting:
    """A point that is to be trained."""

    point: Point
    lock: Path  # of its run
    not_before: float = 0.0  # time.monotonic()
    was_held: bool = False  # by another process
    unread: int = 0  # looks in a row at which its files could not be read


class Backlog:
    """The points of one process that have not ended."""

    def __init__(self, sweep: SweepFolder, points: Sequence[Point], say: Say) -> None:
        self._sweep, self._say, self._total = sweep, say, len(points)
        self._me = _claimant(os.getpid(), threading.get_ident())
        # by run, of points that failed here or elsewhere; without an attempt: here alone
        self.given_up: dict[str, Failure] = {}
        self._free = [self._waiting(point) for point in points]  # as far as is known
        self._held: list[Waiting] = []  # by other processes, when last seen
        self._num_ended = 0
        self._look_at, self._pause_s = 0.0, LOOK_AGAIN_S
        self._has_trained = False  # any of the points, anywhere
        # by slot, of one where nothing runs, such as a broken GPU: it leaves points to others
        self._failures: Counter[int] = Counter()
        self._rests_until: defaultdict[int, float] = defaultdict(float)
        self._num_taken = 0  # by slots of this process, which train them
        self._look_around_at = 0.0

    def __len__(self) -> int:
        return len(self._free) + len(self._held)

    @property
    def is_held(self) -> bool:
        """Whether others train all points that are left."""
        return bool(self._held) and not self._free

    def take(self, slot: int = 0) -> Waiting | None:
        """The next point that is due and that nobody trains; None if there is none now for this
        slot.

        A point that has finished or was given up meanwhile ends here.
        """
        if time.monotonic() < self._rests_until[slot]:
            if not self._is_alone():
                return None
            self._rests_until.clear()
        if not any(waiting.not_before <= time.monotonic() for waiting in self._free):
            self._look_at_held()
        due = [waiting for waiting in self._free if waiting.not_before <= time.monotonic()]
        if not due:
            return None
        locks = Locks(self._sweep.runs_dir)
        for waiting in due:
            self._free.remove(waiting)
            try:
                if self._claimed(waiting, locks):
                    self._pause_s, self._num_taken = LOOK_AGAIN_S, self._num_taken + 1
                    return waiting
            except (UserError, OSError) as error:
                self._unreadable(waiting, error)
        return None

    def _claimed(self, waiting: Waiting, locks: Locks) -> bool:
        """Claims a point that is to be trained. False: it has ended, or is put off.

        Raises: UserError or OSError for a file that is damaged or cannot be read.
        """
        if locks.is_held(waiting.lock):
            self.put_off(waiting)
            return False
        if self._has_ended(waiting):
            return False
        if not self._sweep.claim(waiting.point, self._me):
            self.put_off(waiting)
            return False
        try:
            if not self._has_ended(waiting):
                return True
        except (UserError, OSError):
            self._sweep.release(waiting.point)
            raise
        self._sweep.release(waiting.point)  # it ended just before it was claimed
        return False

    def given_back(self, waiting: Waiting, error: UserError | OSError) -> None:
        """Keeps or ends a point that was taken, and that could not be started or ended for `error`.

        Raises: any OSError that cannot pass; UserError when the failure cannot be recorded.
        """
        self._ends_here(waiting.point)
        self._unreadable(waiting, error)

    def _ends_here(self, point: Point) -> None:
        self._num_taken -= 1
        self._sweep.release(point)

    def _unreadable(self, waiting: Waiting, error: UserError | OSError) -> None:
        """Looks again later at what a file server cannot read or write for now. Gives up what is
        damaged, and for this process alone what it has no right to.
        """
        point, waiting.unread = waiting.point, waiting.unread + 1
        if is_full(error) or (may_pass(error) and waiting.unread < MOST_UNREAD):
            if waiting.unread == 1:
                self._say(f"{point.label}: {error}; looking again later")
            pause_s = min(LOOK_AGAIN_S * waiting.unread, LOOK_SELDOM_S)
            waiting.not_before = time.monotonic() + pause_s
            self._free.append(waiting)
        elif not isinstance(error, UserError | PermissionError) and not may_pass(error):
            raise error
        else:  # the other points are trained
            failure = self._sweep.failure(point)
            if failure is None or not self._sweep.is_given_up(failure):
                failure = Failure(str(error), [], repeats=True, attempts=0)
                if not is_denied(error):
                    failure = self._sweep.record_failure(point, failure)
            self._give_up(point, failure)

    def refused(self, waiting: Waiting) -> None:
        """Keeps a point that was taken, and that another process turned out to train."""
        self._ends_here(waiting.point)
        self.put_off(waiting)

    def put_off(self, waiting: Waiting) -> None:
        """Keeps a point that another process trains, since that process may die."""
        if not self._held:
            self._look_at = max(self._look_at, time.monotonic() + LOOK_AGAIN_S)
            if not waiting.was_held:
                self._pause_s = LOOK_AGAIN_S
                self._say(f"{waiting.point.label}: another process trains it; checking again later")
        waiting.was_held, waiting.unread = True, 0
        self._held.append(waiting)

    def failed(self, point: Point, failure: Failure, slot: int = 0) -> None:
        """Counts a failed attempt; the point comes last again, or is given up.

        Args:
            slot: which has made the attempt.

        Raises: UserError when it cannot be recorded.
        """
        counted = self._sweep.record_failure(point, replace(failure, where=self._me.place))
        self._ends_here(point)
        self._failures[slot] += 1
        in_a_row = self._failures[slot]
        if in_a_row > FAILURES and self._others_train():
            has_message = "".join(failure.log_tail[-1:]).startswith("error: ")
            longest_s = LONGEST_PAUSES_S[0 if has_message else 1 + self._has_trained]
            rest_s = min(2 ** (in_a_row - FAILURES), longest_s)
            self._rests_until[slot] = time.monotonic() + rest_s
            self._say(f"{in_a_row} failed in a row: leaves points to others for {rest_s} s")
        if self._sweep.is_given_up(counted):
            self._give_up(point, counted)
            return
        following = counted.attempts + 1
        self._say(f"{point.label}: {counted.reason}, attempt {following} follows")
        again = self._waiting(point)
        again.not_before = time.monotonic() + counted.attempts
        self._free.append(again)  # another process may take it before this one does

    def _is_alone(self) -> bool:
        """Whether nobody else trains; looked at now and then."""
        if time.monotonic() < self._look_around_at:
            return False
        self._look_around_at = time.monotonic() + LOOK_SELDOM_S
        return not self._others_train()

    def _others_train(self) -> bool:
        """On other machines, in other processes or, once any point has trained, in other slots."""
        if self._num_taken and self._has_trained:
            return True
        locks = Locks(self._sweep.runs_dir)
        return not all(self._may_be_free(each, locks) for each in self._free + self._held)

    def left_to_others(self, point: Point, reason: str) -> None:
        """Gives up, for this process alone, a point that this machine cannot train."""
        self._ends_here(point)
        self._give_up(point, Failure(reason, [], repeats=True, attempts=0))

    def finished(self, point: Point, slot: int = 0) -> None:
        """Ends a point that a slot of this process has trained."""
        self._failures[slot], self._has_trained = 0, True
        tidy_all([(self._sweep.run_folder(point), point.keep)])
        with suppress(OSError):  # its result counts all the same
            self._sweep.forget_failures(point)
        self._ends_here(point)
        self._end(point, "finished")

    def _has_ended(self, waiting: Waiting) -> bool:
        point = waiting.point
        if self._sweep.run_folder(point).finished_within(point.budget):
            self._has_trained = True
            self._end(point, "finished elsewhere" if waiting.was_held else "")
            return True
        failure = self._sweep.failure(point)
        if failure is not None and self._sweep.is_given_up(failure):
            self._give_up(point, failure)
            return True
        return False

    def _look_at_held(self) -> None:
        """Frees points that others no longer hold: all whose lock is gone, and of the others those
        whose holder is found dead among a few."""
        if not self._held or time.monotonic() < self._look_at:
            return
        locks = Locks(self._sweep.runs_dir)
        locked = [each for each in self._held if locks.may_be(each.lock.name)]
        some = random.sample(locked, min(LOOKS, len(locked)))
        still = set(locked) - {each for each in some if self._may_be_free(each, locks)}
        self._free += [each for each in self._held if each not in still]
        self._held = [each for each in self._held if each in still]
        self._pause_s = min(2 * self._pause_s, LOOK_SELDOM_S)
        self._look_at = time.monotonic() + self._pause_s

    def _may_be_free(self, waiting: Waiting, locks: Locks) -> bool:
        """Whether nobody holds a point, or its lock cannot be read: `take` says which."""
        try:
            return not locks.is_held(waiting.lock)
        except OSError:
            return True

    def _waiting(self, point: Point) -> Waiting:
        return Waiting(point, self._sweep.run_folder(point).lock)

    def _give_up(self, point: Point, failure: Failure) -> None:
        self.given_up[point.run] = failure
        self._end(point, f"failed ({failure.reason})")

    def _end(self, point: Point, how: str) -> None:
        """Counts a point, and says how it has ended; "" for one that had before."""
        self._num_ended += 1
        if how:
            self._say(f"[{self._num_ended}/{self._total}] {how}: {point.label}")


@cache
def _claimant(pid: int, thread: int) -> Holder:
    """This thread of this process, with one token for all of its backlogs: a claim that an earlier
    one could not remove is a later one's own."""
    return this_process()
