"""All that one instance knows of its items, one value for each; times in milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.coordination.ledger import Entry, is_cut_off


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
    def last(self) -> int:
        """The moment after which the item's holder owes what comes."""
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

    def join_again(self) -> None:
        """Forget all but what was run or reported here."""
        self.update({number: Item(reported=item.reported) for number, item in self.items()})
