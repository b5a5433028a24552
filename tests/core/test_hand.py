"""The clock hand: who was idle for a whole round may go."""

from __future__ import annotations

import pytest

from resilience._core.hand import Hand


class Key:
    def __init__(self, activity=0):
        self.seen = None
        self.now_active = activity
        self.visits = 0

    def activity(self, now):
        self.visits += 1
        return self.now_active


@pytest.fixture
def members():
    return {("a",): Key(), ("b",): Key(), ("c",): Key()}


def test_nobody_goes_at_the_first_visit(members):
    """Idle since when, nobody can tell yet."""
    hand = Hand()

    assert [None] * 3 == [hand.look(members, 0.0) for _ in range(3)]


def test_who_was_idle_for_a_round_goes(members):
    """In the order of the round."""
    hand = Hand()
    for _ in range(3):
        hand.look(members, 0.0)

    assert list(members.values()) == [hand.look(members, 0.0) for _ in range(3)]


def test_who_was_used_stays(members):
    """Its activity has changed since."""
    hand, used = Hand(), members[("b",)]
    for _ in range(3):
        hand.look(members, 0.0)
    used.now_active += 1

    assert [members[("a",)], None, members[("c",)]] == [hand.look(members, 0.0) for _ in range(3)]
    assert [members[("a",)], used, members[("c",)]] == [hand.look(members, 0.0) for _ in range(3)]


def test_who_can_not_go_begins_anew(members):
    """One that could not go at the last visit is watched for a whole round again."""
    hand, busy = Hand(), members[("b",)]
    busy.now_active = None
    for _ in range(6):
        assert busy is not hand.look(members, 0.0)
    busy.now_active = 0
    for _ in range(3):
        assert busy is not hand.look(members, 0.0)

    assert busy in [hand.look(members, 0.0) for _ in range(3)]


def test_a_look_is_at_one(members):
    """Whatever the number of members."""
    Hand().look(members, 0.0)

    assert 1 == sum(member.visits for member in members.values())


def test_nobody_is_there():
    """Nothing to look at."""
    assert Hand().look({}, 0.0) is None


def test_who_comes_during_a_round_is_visited_in_the_next(members):
    """A round goes over those who were there when it began."""
    hand = Hand()
    hand.look(members, 0.0)
    late = members[("d",)] = Key()
    for _ in range(2):
        hand.look(members, 0.0)
    assert 0 == late.visits
    for _ in range(4):
        hand.look(members, 0.0)

    assert 1 == late.visits
