"""The counts of each minute, and how they are read."""

from __future__ import annotations

import random

import pytest

from django_redlock.history.event_queue import EventRecord
from django_redlock.history.minute_stats import (
    ALL_LOCKS,
    MAX_EVENTS,
    OTHER_LOCKS,
    MinuteStats,
    bucket_of,
    check_history_option,
    count_by_minute,
    quantile,
    read_minute,
    upper_bound,
    without_forced,
)
from django_redlock.history.recorder import Recorder

AT = 1_700_000_040.0


class Place:
    def __init__(self, history):
        self.history, self.history_store, self.written = history, self, []

    def add(self, minute, texts, max_names):
        self.written.append(list(texts))

    def drive(self, flow):
        return flow


PLACE = Place(3)


def moment(kind="acquired", name="stock", at=AT, **details):
    return EventRecord(at, kind, name, backend=PLACE, **details)


@pytest.mark.parametrize("seconds", [0.0, 0.00005, 0.0001, 0.00011, 0.003, 1, 59.9, 7200])
def test_buckets(seconds):
    """A duration lies between the bounds of its bucket, which are half an octave apart."""
    bucket = bucket_of(seconds)
    assert seconds <= upper_bound(bucket) * 1.0000001
    assert bucket == 0 or seconds > upper_bound(bucket - 1)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_quantile(share):
    """A quantile from a histogram is at most a fifth off."""
    draw = random.Random(7)
    durations = sorted(draw.lognormvariate(-4, 1.5) for _ in range(2000))
    histogram = {}
    for each in durations:
        histogram[bucket_of(each)] = histogram.get(bucket_of(each), 0) + 1
    assert quantile(histogram, share) == pytest.approx(durations[int(share * 2000)], rel=0.2)


def test_what_is_counted():
    """A minute has its acquisitions, refusals, losses, forced releases, waits, holds and last events."""
    seen = [
        moment(waited=0.5),
        moment("refused", waited=2, reason="taken", holder='{"host":"a","pid":7,"thread":"t"}'),
        moment("released", held=3),
        moment("lost", held=5, at=AT + 1, reason="the lease ran out"),
        moment("forced", at=AT + 2, holder='{"host":"b","pid":8,"thread":"t","label":"eve"}'),
    ]
    [((place, minute), tallies)] = count_by_minute(seen, {}).items()
    assert (place, minute * 60) == (PLACE, AT)
    found = read_minute(AT, [tallies["stock"].text()])
    assert (found.acquired, found.refused, found.lost, found.forced) == (1, 1, 1, 1)
    assert found.waited == {bucket_of(0.5): 1}
    assert found.held == {bucket_of(3): 1, bucket_of(5): 1}
    assert [each.kind for each in found.events] == ["acquired", "refused", "released", "lost", "forced"]
    assert found.events[1].holder == "a:7 t"
    assert (found.events[3].at, found.events[3].seconds, found.events[3].reason) == (AT + 1, 5, "the lease ran out")
    whole = read_minute(AT, [tallies[ALL_LOCKS].text()])
    assert whole == found._replace(events=())


def test_names_beyond_the_limit_of_a_minute():
    """The first names in a minute are counted one by one to its end, and the next minute starts again."""
    recorder, place = Recorder(), Place(2)
    for at, names in ((AT, "ab"), (AT + 1, "cb"), (AT + 2, "dca"), (AT + 60, "dc")):
        recorder.observe([moment(name=name, at=at)._replace(backend=place) for name in names])()
    assert place.written == [
        [ALL_LOCKS, "a", "b"],
        [ALL_LOCKS, OTHER_LOCKS, "b"],
        [ALL_LOCKS, OTHER_LOCKS, "a"],
        [ALL_LOCKS, "d", "c"],
    ]


def test_texts_are_bounded():
    """The texts of an event, such as its owner, are cut."""
    [tallies] = count_by_minute([moment("refused", reason="x" * 9000, holder="y" * 9000)] * 9, {}).values()
    assert len(tallies["stock"].text()) < 400 * MAX_EVENTS + 100


@pytest.mark.parametrize(
    ("forced", "lost", "left"),
    [
        ([1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]),
        ([1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]),
        ([1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]),
        ([0, 1, 0, 0], [1, 3, 0, 0], [1, 2, 0, 0]),
        ([2, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0]),
    ],
)
def test_forced_releases_are_not_lost_too(forced, lost, left):
    """A loss within two minutes after a forced release is not counted as a loss."""
    minutes = [
        MinuteStats(60.0 * index, forced=f, lost=n) for index, (f, n) in enumerate(zip(forced, lost, strict=True))
    ]
    assert [each.lost for each in without_forced(minutes)] == left


@pytest.mark.parametrize(("option", "number"), [(True, 200), (False, 0), (0, 0), (7, 7)])
def test_option(option, number):
    """`history` is a number of names or a bool."""
    assert check_history_option(option) == number


@pytest.mark.parametrize("option", [-1, "yes", 1.5, None])
def test_wrong_option(option):
    """Any other value of `history` is an error."""
    with pytest.raises(ValueError if option == -1 else TypeError, match="history"):
        check_history_option(option)
