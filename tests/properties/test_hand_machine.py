"""The clock hand against a plain sweep: it goes over all who were there, in order, and remembers what it saw."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from resilience._core.hand import Hand


class Key:
    def __init__(self, name):
        self.name = name
        self.seen = None
        self.uses = 0
        self.busy = False

    def activity(self, now):
        return None if self.busy else self.uses


class HandMachine(RuleBasedStateMachine):
    """A reference that says the same in other words: a list of whose turn it is, and a note per member."""

    def __init__(self):
        super().__init__()
        self.hand = Hand()
        self.members = {}
        self.turn = []
        self.notes = {}
        self.fresh = 0

    @rule()
    def come(self):
        self.fresh += 1
        self.members[(str(self.fresh),)] = Key(self.fresh)

    @rule(data=st.data())
    def use(self, data):
        if self.members:
            data.draw(st.sampled_from(list(self.members.values()))).uses += 1

    @rule(data=st.data())
    def be_busy_or_not(self, data):
        if self.members:
            member = data.draw(st.sampled_from(list(self.members.values())))
            member.busy = not member.busy

    @rule(looks=st.integers(1, 8))
    def look(self, looks):
        for _ in range(looks):
            found = self.hand.look(self.members, 0.0)
            if not self.turn:
                self.turn = list(self.members.values())
            if not self.turn:
                assert found is None
                continue
            member = self.turn.pop(0)
            note = self.notes.get(member.name, "never seen")
            idle = not member.busy and note == member.uses
            assert (member if idle else None) is found
            if not idle:
                self.notes[member.name] = "busy" if member.busy else member.uses
            elif self.members.pop((str(member.name),), None) is not None:
                self.notes.pop(member.name)
                # It has gone, and is not looked at again unless the round still holds it.
                self.notes[member.name] = member.uses


TestHand = HandMachine.TestCase
TestHand.settings = settings(max_examples=40, stateful_step_count=40)
