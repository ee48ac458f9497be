"""Which process trains which part of a plan, and which rows of a micro-batch it works on.

A stage with dp replicas of tp processes each occupies dp · tp consecutive ranks, stages in order.
Every micro-batch has the same number of rows on all stages; replica i of d works on the i-th of d
equal parts of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StagePlace:
    """The processes of one stage: the rank of the first, its replicas of ``tp`` processes, and the
    rows each works on."""

    stage: int
    first: int
    dp: int
    tp: int
    rows: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of its ranks."""
        return tuple(range(self.first, self.first + self.dp * self.tp))

    def rank(self, replica: int, part: int) -> int:
        """The rank of one process."""
        return self.first + replica * self.tp + part

    def replicas(self, part: int) -> tuple[int, ...]:
        """Ranks that hold the same ``part`` of the weights."""
        return tuple(self.rank(replica, part) for replica in range(self.dp))

    def parts(self, replica: int) -> tuple[int, ...]:
        """Ranks that share the products of one ``replica``."""
        return tuple(self.rank(replica, part) for part in range(self.tp))


@dataclass(frozen=True)
class Seat:
    """One process: its stage, and which replica and part of it."""

    place: StagePlace
    replica: int
    part: int

    @property
    def rank(self) -> int:
        """Its rank."""
        return self.place.rank(self.replica, self.part)

    @property
    def rows(self) -> range:
        """Its rows of a micro-batch."""
        return range(self.replica * self.place.rows, (self.replica + 1) * self.place.rows)


def seat_of(places: tuple[StagePlace, ...], rank: int) -> Seat:
    """Where ``rank`` sits."""
    place = next(each for each in places if rank in each.ranks)
    return Seat(place, (rank - place.first) // place.tp, (rank - place.first) % place.tp)


@dataclass(frozen=True)
class Link:
    """Rows that go from one process to another, counted from the first row of each; None stands for
    a tensor without rows."""

    source: int
    target: int
    source_rows: range | None
    target_rows: range | None


def forward_links(source: StagePlace, target: StagePlace, *, in_rows: bool) -> tuple[Link, ...]:
    """How a tensor of one stage reaches all processes of another: in slices of its rows, or whole
    from the first that has it."""
    return tuple(
        link for seat in _seats(target) for link in _gathered(seat, source, in_rows=in_rows)
    )


def backward_links(source: StagePlace, target: StagePlace, *, in_rows: bool) -> tuple[Link, ...]:
    """How its gradient comes back from ``target`` to ``source``.

    Of a tensor without rows each replica of ``target`` has a share of the gradient, which goes to
    the one replica of ``source`` that it got the tensor from: gradients of weights are added over
    replicas anyway.
    """
    if in_rows:
        return tuple(
            link for seat in _seats(source) for link in _gathered(seat, target, in_rows=True)
        )
    first = {seat.replica: _sharing(seat, source)[0] for seat in _seats(target)}
    return tuple(
        Link(target.rank(replica, part % target.tp), source.rank(to.replica, part), None, None)
        for replica, to in first.items()
        for part in range(source.tp)
    )


def _seats(place: StagePlace) -> tuple[Seat, ...]:
    return tuple(
        Seat(place, replica, part) for replica in range(place.dp) for part in range(place.tp)
    )


def _sharing(mine: Seat, others: StagePlace) -> tuple[Seat, ...]:
    """The processes of another stage that work on rows of this one's, one of each replica."""
    seats = (Seat(others, replica, mine.part % others.tp) for replica in range(others.dp))
    return tuple(
        seat
        for seat in seats
        if seat.rows.start < mine.rows.stop and mine.rows.start < seat.rows.stop
    )


def _gathered(mine: Seat, others: StagePlace, *, in_rows: bool) -> tuple[Link, ...]:
    """What this process is sent by another stage."""
    sharing = _sharing(mine, others)
    if not in_rows:
        return (Link(sharing[0].rank, mine.rank, None, None),)
    links = []
    for seat in sharing:
        begin, end = max(seat.rows.start, mine.rows.start), min(seat.rows.stop, mine.rows.stop)
        ours, theirs = (
            range(begin - each.rows.start, end - each.rows.start) for each in (mine, seat)
        )
        links.append(Link(seat.rank, mine.rank, theirs, ours))
    return tuple(links)
