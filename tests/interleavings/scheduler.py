"""Every way in which a few threads can interleave, bytecode by bytecode.

How a schedule is run
    Each thread is a real one and runs under a trace function that is called before every
    bytecode of the library (files below `resilience/`, generated `<resilience …>` wrappers)
    and of the scenario's own file. Exactly one thread runs at any time; before a bytecode at
    which it matters who goes on, the running thread asks the explorer. Locks and threads that the
    library makes are ours while a scenario lasts: whoever would block lets another one
    go on, a state in which nobody can go on is a deadlock, and a wait with a timeout may run out
    whenever the explorer says so. No time passes, nothing is random: a schedule
    is a list of choices and can be run again.

Where it matters who goes on
    `bytecodes.OWN` lists the bytecodes that touch nothing but the frame's own stack and fast locals
    (or compare and add numbers, which nobody can change). What another thread does before or
    after them makes no difference. Everything else, also a bytecode nobody has
    heard of, is an *access* to a place: an attribute by its name, a cell or a global by its
    name, or `HEAP`, which stands for the inside of all containers and counters together. Two names of one place
    are one place, so the places are coarse, and that is safe: more places conflict than do in truth.

    A place conflicts if two threads come there in any schedule seen so far and at least
    one of them writes. An access elsewhere commutes with all that the others do, so it is
    done in one go with the step before it. If a schedule shows a new conflict the
    exploration starts over with it, until there is none: then each interleaving
    of all bytecodes is a reordering of commuting steps of one that was explored.

When a state has been seen
    All schedules are walked depth first, by running them again from the beginning. A
    state that was seen before is not gone on from: the same future would follow. The
    state is everything reachable from what the scenario watches, from the locals of every frame of every
    thread, where each of them stands, and who waits for which lock, with objects numbered in
    the order in which they are reached. What is only on a frame's stack can't be seen
    from Python: for it stands what the frame has read in conflicting places since
    its stack was last empty. `test_explorer.py` compares with explorations that skip nothing.

What is not seen: finalisers and signals (`tests/races/test_reentrancy.py` has them), the inside
of one C call, and Python code of others (logging, say), which runs in one go.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import logging
import os
import sys
import threading
import time
import types
from contextvars import Context, ContextVar
from typing import NamedTuple

from bytecodes import CONTAINERS, HARMLESS, HARMLESS_TYPES, HEAP, READING, Plan, follow
from cooperative import Abort, Found, Thread, Threading
from pictures import Picture

from resilience._changing import CHANGING, LEFT
from resilience._policies import marks

LINES_FIRST = sys.version_info >= (3, 13)
"""Python 3.13 forgets that bytecodes of a function were asked for when it runs without being traced, and takes notice
of being asked again from the first line of a frame on, not when it is called."""


class Race(NamedTuple):
    """One fresh world: what the threads do, what they share, and what must hold when all have ended."""

    bodies: tuple
    watched: tuple
    """Objects whose reachable state decides the future, and everything that `check` reads."""
    check: object
    """Called with the results of the bodies in order; an AssertionError is a find."""
    patience: tuple = ()
    """How many waits with a timeout may run out, by thread; more threads than given have none."""
    reading: object = None
    """Called with the results: all that a user could tell afterwards; it must be the same as in some order one after
    the other."""


class Report(NamedTuple):
    """What an exploration was."""

    schedules: int
    complete: int
    states: int
    places: tuple
    seconds: float
    """Of processor time."""
    outcomes: frozenset

    def __str__(self):
        return (
            f"{self.schedules} schedules, {self.complete} to the end, {self.states} states, "
            f"{len(self.places)} conflicting places, {len(self.outcomes)} outcomes, {self.seconds:.1f} s"
        )

    __repr__ = __str__


class Explorer:
    """Runs a scenario in every schedule, or in every one with at most so many preemptions."""

    def __init__(self, traced_file=""):
        self.traced_file = traced_file
        self._known = {}
        self._plans, self._passing = {}, []
        self._threads = []
        self.current = None
        self.draining = False
        self._main = threading.Lock()
        self._main.acquire()
        self._python, self._mixed = set(), set()
        self.tried = set()
        self._locks = itertools.count()
        self._names, self._owners = {}, {}
        self._written, self._coarse, self._shared = set(), set(), set()
        self._touched = {}
        self._conflicts = set()
        self._learned = False

    # -------------------------------------------------------------------------------------------- from the outside
    def __call__(self, make, *, preemptions=None, pruned=True, everywhere=False, most=100_000):
        """Explore; a schedule that breaks a promise raises `Found`, which tells it.

        Args:
            make: makes a `Race`, once for each schedule.
            preemptions: how often a thread that could go on may be put aside in one schedule; None for no limit.
            pruned: whether states that were seen before are left out.
            everywhere: whether each access is a place to stop at, whether anybody else comes there or not.
            most: schedules after which something must be wrong with the scenario.
        """
        began = time.process_time()
        for known in (
            *(self._python, self._mixed, self.tried, self._touched, self._conflicts),
            *(self._written, self._coarse, self._shared),
        ):
            known.clear()
        self._preemptions, self._pruned = preemptions, pruned
        put_back = self._take_over()
        try:
            self._serial = self._one_after_the_other(make)
            self._most, self._everywhere = most, everywhere
            schedules, complete, outcomes = self._walk(make)
            states = len(self._visited)
            self._tell_states_apart(make)
        finally:
            put_back()
        places, seconds = tuple(sorted(self._conflicts)), time.process_time() - began
        return Report(schedules, complete, states, places, seconds, frozenset(outcomes))

    def _walk(self, make):
        """All schedules, with what is known of conflicts; again from the beginning where one shows another conflict."""
        while True:
            self._learned = False
            self._visited, self._todo = {}, [((), ())]
            schedules, complete, outcomes = 0, 0, set()
            while self._todo and not self._learned:
                schedules += 1
                assert schedules <= self._most, f"more than {self._most} schedules"
                outcome = self._schedule(make, *self._todo.pop())
                if outcome is not None:
                    complete += 1
                    outcomes.add(outcome)
                if schedules % 500 == 0:
                    gc.collect()
            if not self._learned:
                return schedules, complete, outcomes
            if schedules > 200 and self._preemptions is None:
                # A long walk was in vain: a quick look around shows most of what there is to learn.
                self._preemptions = 1
                self._walk(make)
                self._preemptions = None

    def _tell_states_apart(self, make):
        """A schedule that is run again must come to the same states, or nothing would ever be seen to have been seen."""
        if not self._pruned:
            return
        keys = []
        for _ in range(2):
            self._visited, self._todo = {}, []
            self._schedule(make, (), ())
            keys.append(list(self._visited))
        assert keys[0] == keys[1], "what is watched holds something that is another in each schedule"

    @staticmethod
    def _one_after_the_other(make):
        """The readings of all orders in which the bodies can run without any interleaving."""
        first = make()
        if first.reading is None:
            return None
        readings = []
        for order in itertools.permutations(range(len(first.bodies))):
            race, results = make(), [None] * len(first.bodies)
            for index in order:
                results[index] = race.bodies[index]()
            race.check(results)
            readings.append(race.reading(results))
        return readings

    def close(self):
        for thread in self._threads:
            thread.renew(None)
            thread.baton.release()
            thread.real.join(10)
        self._threads.clear()

    def _take_over(self):
        """Put our own locks and threads into the library; what undoes it."""
        replaced = [
            module
            for name, module in list(sys.modules.items())
            if name.split(".")[0] == "resilience" and vars(module).get("threading") is threading
        ]
        stand_in = Threading(self)
        for module in replaced:
            module.threading = stand_in
        serials = marks._SERIALS
        collecting, loud = gc.isenabled(), logging.root.manager.disable
        gc.freeze()
        gc.disable()
        logging.disable(logging.CRITICAL)

        def put_back():
            for module in replaced:
                module.threading = threading
            marks._SERIALS = serials
            gc.unfreeze()
            if collecting:
                gc.enable()
            logging.disable(loud)

        return put_back

    # -------------------------------------------------------------------------------------------- one schedule
    def _schedule(self, make, choices, observed):
        """Run the choices, then go on with whoever runs; what came of it, or None if that had been seen before."""
        self.current, self.draining = None, False
        self._count = 0
        self._choices, self._observed = list(choices), list(observed)
        self._decided = self._looked = 0
        self._left = self._preemptions
        self._story, self._verdict = [], None
        self._locks = itertools.count()
        # The numbers of a process begin anew in each schedule.
        marks._SERIALS = itertools.count(1)
        self.race = race = make()
        self._names.clear()
        self._owners.clear()
        # A wrapper's code is made anew for each schedule, all other code is there for good.
        for known in self._passing:
            del self._plans[known]
        self._passing.clear()
        roles = Picture(names=self._names)
        for index, watched in enumerate(race.watched):
            roles.name = self._names[id(watched)] = f"watched {index}"
            roles.add(watched)
        for body in race.bodies:
            self.add(body)
        mine = self._threads[: self._count]
        first = self._decide(None)
        self._hand_to(first)
        self._main.acquire()
        mine = self._threads[: self._count]
        self.current = None
        self._learn()
        if self._verdict == "seen":
            return None
        bodies = mine[: len(race.bodies)]
        try:
            assert self._verdict is None, self._verdict
            for thread in mine:
                if thread.error is not None:
                    raise AssertionError(f"thread {thread.index} raised {thread.error!r}") from thread.error
            results = [thread.result for thread in bodies]
            race.check(results)
            if race.reading is not None:
                reading = race.reading(results)
                assert reading in self._serial, f"no order one after the other gives {reading}, but {self._serial}"
        except Exception as error:
            raise Found(f"{type(error).__name__}: {error}\n{self.story()}") from error
        picture = Picture()
        picture.add(tuple(thread.result for thread in bodies))
        for watched in race.watched:
            picture.add(watched)
        return picture.value()

    def add(self, body, daemon=False):
        index = self._count
        self._count += 1
        if index == len(self._threads):
            self._threads.append(Thread(self, index))
        patience = self.race.patience[index] if index < len(self.race.patience) else 0
        self._threads[index].renew(body, daemon, patience)

    def story(self):
        """The schedule in words: where each thread was put aside."""
        lines = []
        for index, frame_of, line, after in self._story:
            where = (
                "its end"
                if frame_of is None
                else f"{os.path.basename(frame_of.co_filename)}:{line} {frame_of.co_qualname}"
            )
            lines.append(
                f"  thread {index} stops at {where}; thread {after} goes on"
                if index is not None
                else f"  thread {after} begins"
            )
        return "\n".join(lines)

    def _learn(self):
        """Which places conflict, as far as the schedules so far tell."""
        for place, (by_thread, locks) in self._touched.items():
            if place not in self._conflicts and not locks and len(by_thread) > 1 and any(by_thread.values()):
                self._conflicts.add(place)
                self._learned = True

    # -------------------------------------------------------------------------------------------- who goes on
    def _decide(self, me, frame=None):
        """Whose turn it is; None if nobody's."""
        able = [thread for thread in self._threads[: self._count] if thread.can_go_on()]
        if not able:
            return None
        if len(able) == 1:
            return able[0]
        if self.draining:
            return me if me in able else able[0]
        if me is not None:
            me.frame = frame
        mine = me in able
        if mine and self._left == 0:
            return me
        if self._decided < len(self._choices):
            chosen = self._threads[self._choices[self._decided]]
        else:
            if self._is_known(me if mine else None):
                self._verdict = "seen"
                self.draining = True
                return me if mine else able[0]
            chosen = me if mine else able[0]
            so_far, seen = tuple(self._choices[: self._decided]), tuple(self._observed[: self._looked])
            self._todo += [((*so_far, other.index), seen) for other in able if other is not chosen]
            self._choices.append(chosen.index)
        self._decided += 1
        if mine and chosen is not me and self._left is not None:
            self._left -= 1
        return chosen

    def _is_known(self, me):
        if not self._pruned:
            return False
        key, left = self._picture(), 0
        if self._preemptions is not None:
            # Who runs on matters, as anybody else is a preemption; and so does how many are left.
            key, left = hash((key, None if me is None else me.index)), self._left
        if self._visited.get(key, -1) >= left:
            return True
        self._visited[key] = left
        return False

    def _picture(self, only=None):
        picture = Picture(only)
        for watched in self.race.watched:
            picture.add(watched)
        for thread in self._threads[: self._count]:
            picture.out.append((thread.index, thread.done, thread.patience, thread.timed))
            if thread.waiting is not None:
                picture.add(thread.waiting)
            frame = thread.frame
            if thread.done:
                picture.add(thread.result)
            while frame is not None and frame.f_code is not _BASE:
                code = frame.f_code
                picture.out.append((code.co_filename, code.co_qualname, frame.f_lasti, thread.chains.get(frame)))
                for name, value in dict(frame.f_locals).items():
                    picture.out.append(name)
                    picture.add(value)
                frame = frame.f_back
        return picture.value()

    def _hand_to(self, thread):
        self.current = thread
        thread.baton.release()

    def _turn(self, me, frame):
        """Let whoever is chosen go on; comes back when it is our turn again."""
        chosen = self._decide(me, frame)
        if chosen is me:
            return
        if chosen is None:
            self._stuck()
            chosen = next(thread for thread in self._threads[: self._count] if not thread.done)
        if not self.draining:
            me.frame = frame
            self._story.append((me.index, frame.f_code, frame.f_lineno, chosen.index))
        if chosen is me:
            return
        self._hand_to(chosen)
        me.baton.acquire()

    def _stuck(self):
        """Nobody can go on: the end, if only daemons are left, or a deadlock. Whoever waits is ended."""
        waiting = [thread for thread in self._threads[: self._count] if not thread.done]
        if self._verdict is None and not all(thread.daemon for thread in waiting):
            self._verdict = "deadlock: " + ", ".join(f"thread {thread.index}" for thread in waiting) + " wait for ever"
        self.draining = True
        for thread in waiting:
            thread.waiting = None
            thread.timed = "abort"

    def finished(self, me):
        """Called by a thread at its end."""
        left = [thread for thread in self._threads[: self._count] if not thread.done]
        if not left:
            self._main.release()
            return
        chosen = self._decide(me)
        if chosen is None:
            self._stuck()
            chosen = left[0]
        if not self.draining:
            self._story.append((me.index, None, 0, chosen.index))
        self._hand_to(chosen)

    # -------------------------------------------------------------------------------------------- from locks
    def next_lock(self):
        """The number of a new lock, the same in each schedule; None for one that is made while threads run."""
        return next(self._locks) if self.current is None else None

    def is_tried(self, serial):
        """Somebody only tries this lock: it makes a difference when it is released."""
        if serial is not None and serial not in self.tried:
            self.tried.add(serial)
            self._learned = self._learned or self.current is not None

    def stop_at_lock(self, frame):
        me = self.current
        if me is None or (self.draining and me.timed != "abort"):
            return
        if me.timed == "abort":
            return
        me.called = None
        self._turn(me, frame)

    def wait_for(self, lock, timed):
        """Until the lock is free (True) or time is up (False)."""
        me = self.current
        assert me is not None, "a scenario's own thread would wait for ever"
        if me.timed == "abort":
            raise Abort
        me.waiting, me.timed = lock, timed
        self._turn(me, sys._getframe(1))
        if me.timed == "abort":
            raise Abort
        me.waiting, me.timed = None, False
        if lock.is_free_for(me):
            return True
        assert timed, "woken for nothing"
        me.patience -= 1
        return False

    # -------------------------------------------------------------------------------------------- from bytecodes
    def _touch(self, me, place, writes):
        """Note an access; True if it is one before which others may want to go on."""
        known = self._touched.get(place)
        if known is None:
            known = self._touched[place] = [{}, me.locks]
        by_thread, locks = known
        if writes or me.index not in by_thread:
            by_thread[me.index] = by_thread.get(me.index, False) or writes
        if locks and not locks <= me.locks:
            known[1] = locks & me.locks
        return self._everywhere or place in self._conflicts

    def _access(self, me, step, frame):
        """What a bytecode whose place depends on an object will touch: (place, writes); None for nothing that matters."""
        path, writes = step.path, step.writes
        thing, found = follow(path, frame)
        if step.is_call:
            if not found:
                return HEAP, True
            if isinstance(thing, (types.FunctionType, types.MethodType)):
                return None  # a coroutine or generator is made, which is not yet begun
            name = getattr(thing, "__name__", "")
            if isinstance(thing, type) or name in HARMLESS:
                if step.argument is None or thing not in (tuple, list, set, dict, frozenset, bool):
                    return None
                owner, writes = None, False
            else:
                owner, writes = getattr(thing, "__self__", None), name not in READING
                if name == "__set__":
                    owner = builtins  # a slot of the first argument
            if owner is None or isinstance(owner, types.ModuleType):
                if step.argument is None:
                    return (HEAP, True) if owner is None else None
                path = step.argument
                owner, found = follow(path, frame)
                if not found:
                    return HEAP, writes
            thing = owner
        elif not found:
            return HEAP, writes
        if thing is CHANGING or thing is LEFT:
            return None  # each thread comes to its own key only
        if isinstance(thing, HARMLESS_TYPES) or not isinstance(thing, CONTAINERS):
            kind = type(thing).__name__
            if kind == "list_iterator":
                thing = thing.__reduce__()[1][0]
            elif isinstance(thing, (ContextVar, Context)) or not step.is_call or isinstance(thing, HARMLESS_TYPES):
                return None
        place = self._place_of(me, thing, "", path)
        return None if place is None else (place, writes)

    def _attribute(self, me, step, frame):
        """The place of an attribute: of this object, where it can be told which it is; None for nobody else's."""
        name = step.place
        if self._everywhere:
            return name
        if name not in self._written:
            if not step.writes:
                return None
            self._written.add(name)
            self._learned = True
        if name in self._coarse:
            return name
        thing, found = follow(step.path, frame)
        if not found or thing is None:
            self._coarse.add(name)
            self._learned = True
            return name
        return self._place_of(me, thing, name, step.path)

    def _place_of(self, me, thing, suffix, path):
        """The place of an object, or of an attribute of it; None as long as only this thread has come there."""
        name = self._names.get(id(thing))
        if name is not None:
            return name + suffix
        if path and path[0] is None:
            return f"global {path[1]}{suffix}"
        place = f"a new {type(thing).__name__}{suffix}"
        if place not in self._shared and not self._everywhere:
            owner, _ = self._owners.setdefault(id(thing), (me, thing))
            if owner is me:
                return None
            self._shared.add(place)
            self._learned = True
        return place

    def _plan_of(self, code):
        """What is known of a code object; None where it is not to be traced."""
        if code not in self._known:
            name = code.co_filename
            traced = name.startswith(("<resilience", LIBRARY_ROOT)) or name == self.traced_file
            self._known[code] = Plan(code) if traced else None
        return self._known[code]

    def tracer(self, me):
        """The trace function of one thread."""
        plans, chains = self._plans, me.chains
        python, mixed = self._python, self._mixed

        def bytecode(frame, event, arg):
            site = me.called
            if site is not None:
                # No Python function has begun since: it was a call into C.
                me.called = None
                if site not in mixed:
                    mixed.add(site)
                    self._learned = True
            if event != "opcode":
                if event == "return":
                    chains.pop(frame, None)
                    if arg is not None and me.latest is not frame and not self.draining:
                        raise AssertionError(
                            f"the interpreter does not give all bytecodes of {frame.f_code.co_qualname}"
                        )
                elif event == "line":
                    frame.f_trace_opcodes, frame.f_trace_lines = True, False
                return bytecode
            if self.draining:
                return None
            me.latest = frame
            plan, _ = plans[id(frame.f_code)]
            offset = frame.f_lasti
            if chains and offset in plan.empty:
                chains.pop(frame, None)
            step = plan.steps.get(offset)
            if step is None:
                return bytecode
            place, writes = step.place, step.writes
            if place is None:
                if step.is_call:
                    site = (plan.key, offset)
                    if site not in mixed:
                        if site in python:
                            me.called = site
                            return bytecode
                        thing, found = follow(step.path, frame)
                        if not found or isinstance(thing, (types.FunctionType, types.MethodType)):
                            me.called = site
                            return bytecode
                access = self._access(me, step, frame)
                if access is None:
                    return bytecode
                place, writes = access
            elif place[0] == ".":
                place = self._attribute(me, step, frame)
                if place is None:
                    return bytecode
            if self._touch(me, place, writes):
                self._turn(me, frame)
                if self.draining:
                    return None
                if step.pushes and self._pruned and self._left != 0:
                    if self._looked < len(self._observed):
                        read = self._observed[self._looked]
                    else:
                        me.frame = frame
                        read = self._picture(step.place or HEAP)
                        self._observed.append(read)
                    self._looked += 1
                    chains[frame] = hash((chains.get(frame), offset, read))
            return bytecode

        def begin(frame, event, arg):
            if me.called is not None:
                python.add(me.called)
                me.called = None
            code = frame.f_code
            known = plans.get(id(code))
            if known is None:
                # By identity, as comparing code objects takes its time; they are kept as long as that is to hold.
                known = plans[id(code)] = (self._plan_of(code), code)
                if code.co_filename.startswith("<"):
                    self._passing.append(id(code))
            if known[0] is None or self.draining:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = LINES_FIRST
            return bytecode

        return begin


_BASE = Thread._run.__code__
Picture.kinds[Explorer] = lambda picture, explorer: None
Picture.kinds[Thread] = lambda picture, thread: picture.out.append(thread.index)


def _library_root():
    import resilience

    return os.path.dirname(resilience.__file__) + os.sep


LIBRARY_ROOT = _library_root()


def _want_bytecodes():
    """Python 3.12 looks, when tracing starts, whether any frame has ever wanted bytecodes.

    Once, and in a frame that is gone then: in an instrumented one of a thread without a trace function, 3.12 crashes.
    """
    sys._getframe().f_trace_opcodes = True


_want_bytecodes()
