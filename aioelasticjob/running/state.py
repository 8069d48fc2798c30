"""All that one instance knows of its items, one value for each; times in milliseconds since the epoch.

And the one table that says what becomes of the moments that came to an item, by the state that it was in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from aioelasticjob.coordination.record_cache import Entry, is_cut_off


class Newest(Enum):
    """What becomes of the newest moment that came to an item.  Of the older ones none is run any more."""

    RUN = auto()
    """It is run, and counts as on time."""
    LATE = auto()
    """It is run, and counts as a rerun."""
    RERUN = auto()
    """It is reported as missed, and run all the same, as a rerun."""
    MISSED = auto()
    """It is reported as missed, and not run."""
    EXCUSED = auto()
    """It is not run, and nothing is reported, neither of it nor of the older ones."""


class Came(Enum):
    """In which state an item was when moments of it came."""

    HELD_UP = auto()
    """It could have been run, but this process did not look."""
    UNSETTLED = auto()
    """It waited to be claimed, until the assignment was settled."""
    OVERTAKEN = auto()
    """It came free after the claim for a later moment had left."""
    RUNNING = auto()
    """It was run here."""
    REFUSED = auto()
    """It was claimed, and another instance turned out to run it."""
    ELSEWHERE = auto()
    """It was known that another instance ran it; that run has ended."""
    BLOCKED = auto()
    """Others held it, or it was being rescued, or waited to be."""
    DISCONNECTED = auto()
    """This process could not hear the registry when the newest moment came."""
    OBSTRUCTED = auto()
    """It was claimed, and something that was made by hand stood in the way."""
    OFF = auto()
    """It was switched off, or this server was."""
    REPLACED = auto()
    """The schedule was changed before it could be run."""
    UNHEARD = auto()
    """The schedule was in force already, but was not known here."""
    UNRECORDED = auto()
    """Others kept us from running it, and then records were switched off, which had told so."""
    SET_BACK = auto()
    """Its record claimed a moment that was yet to come, because the registry's clock had been ahead."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of moments that came in a state."""

    why: str
    """Why the older ones were missed."""
    newest: Newest
    """What becomes of the newest one if the job wants ``misfire``."""
    without_misfire: Newest
    """What becomes of it if not."""
    why_newest: str = ""
    """Why the newest one was missed, if that is another reason."""

    def fate(self, *, misfire: bool) -> Newest:
        """Return what becomes of the newest moment."""
        return self.newest if misfire else self.without_misfire


AWAY = "the registry was away"
BUSY = "the last run was still going on"
ENDED = "the schedule was changed before it could be run"
SET_BACK = "the registry's clock was ahead and has been set back"
UNKNOWN = "they came before the new schedule was known here"
NOT_RUNNABLE = "nobody could run it when they came"
STILL_RAN = "another instance still ran it"

TABLE = {
    Came.HELD_UP: Rule("this process was held up", Newest.RUN, Newest.RUN),
    Came.UNSETTLED: Rule("the assignment was not settled", Newest.RUN, Newest.RUN),
    Came.OVERTAKEN: Rule(STILL_RAN, Newest.RUN, Newest.RUN),
    Came.RUNNING: Rule(BUSY, Newest.RERUN, Newest.MISSED),
    Came.REFUSED: Rule("another instance still runs it", Newest.RERUN, Newest.MISSED),
    Came.ELSEWHERE: Rule(NOT_RUNNABLE, Newest.LATE, Newest.MISSED, STILL_RAN),
    Came.BLOCKED: Rule(NOT_RUNNABLE, Newest.RUN, Newest.RUN),
    Came.DISCONNECTED: Rule(AWAY, Newest.LATE, Newest.MISSED),
    Came.OBSTRUCTED: Rule("what was made by hand stands in its way", Newest.MISSED, Newest.MISSED),
    Came.OFF: Rule("", Newest.EXCUSED, Newest.EXCUSED),
    Came.REPLACED: Rule(ENDED, Newest.MISSED, Newest.MISSED),
    Came.UNHEARD: Rule(UNKNOWN, Newest.RUN, Newest.RUN),
    Came.UNRECORDED: Rule("records were switched off before it could be run", Newest.MISSED, Newest.MISSED),
    Came.SET_BACK: Rule(SET_BACK, Newest.RUN, Newest.RUN),
}
"""What becomes of moments, by the state in which they came.  Five cases are no matter of one item's state, and each is
told where it is decided:

* The registry was away, or the clock was set ahead: that is the reason then, whatever the state (``MissedMoments``).
  Else somebody whose registry was away for a minute would read that his process had been held up, and look there.
* Nobody was up (``UnattendedMoments``): the cluster shares marks of what was reported.  Else two instances that come
back after a
  night would both report it for an item that moves from one to the other a second later.
* The job keeps no records (``UnattendedMoments``): its leader reports what nobody was up for, for all items, once.
Else nobody
  would know of that night at all, for no instance knows when the last run was.
* A record claims a moment that is yet to come (``FutureRecords``).  Else an item that was claimed for 03:00 by a clock
an hour
  ahead would be silent from 02:00 until then, when the clock is put right, and nothing would be reported.
* A schedule was in force before it was known here (``MissedMoments.report_hidden``).  Else, when a job goes from each
  minute to each second at 01:59:30 and this instance hears of that after it has claimed 02:00:00, the seconds before
  02:00:00 would count as claimed, for the record says only when the last run was.
"""


@dataclass(slots=True)
class Item(Entry):
    """What the registry says of one item, and what is owed and was reported of it here."""

    reported: int = 0
    """The newest moment that was run or reported here, also before the job joined again; 0 if there is none."""
    floor: int = 0
    """Up to this moment nothing is owed."""
    given: int = 0
    """When the item was given to us, as a zxid: it may have gone away and come back between two looks; 0 if it is not
    ours."""
    elsewhere: bool = False
    """Whether another instance still runs the item."""
    closed: bool = False
    """Whether the item is ours and not to be run, because it or this server is switched off."""
    rescued: bool = False
    """Whether the item is ours and is being rescued, or waits to be."""
    followed: int | None = None
    """The last moment when the schedule in force began to be followed for the item: later ones are its moments."""
    late: int = 0
    """The moment that came while others ran the item."""
    lost_run: int = 0
    """When the run began that was last reported as cut off."""
    ahead_since: int | None = None
    """From when on the item's moments are in question, if its record claims moments that have yet to come."""
    ahead_found: int = 0
    """What the time was when that was found."""
    far_ahead: bool = False
    """Whether the record claims too much."""

    @property
    def accounted(self) -> int:
        """Every moment up to this one is run, reported as missed, or excused: the holder owes what comes after it."""
        return max(self.floor, self.record.slot)

    @property
    def cut_off(self) -> bool:
        """Whether the newest run has not come to an end, as far as the record says."""
        return is_cut_off(self.record)

    def owes(self, moment: int) -> bool:
        """Whether a moment has neither been claimed nor passed over."""
        return self.floor < moment and self.record.slot < moment != self.record.ahead

    def knows(self, moment: int) -> bool:
        """Whether a moment, or a later one, was run or reported here."""
        return self.reported >= moment > 0


class Items(dict[int, Item]):
    """The items of a job, by number; whoever asks for one that is not there makes it."""

    def __missing__(self, number: int) -> Item:
        item = self[number] = Item()
        return item

    def ran(self, items: Iterable[int], moment: int) -> None:
        """Note that items were run for a moment; lowering the number of items may remove their records."""
        for number in items:
            self[number].reported = max(moment, self[number].reported)

    def join_again(self) -> None:
        """Forget all but what was run or reported here."""
        self.update({number: Item(reported=item.reported) for number, item in self.items()})
