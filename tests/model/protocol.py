"""The permit protocol as an explicit model: states are values, steps are functions, nothing is shared with the library.

It is written from the contract. Callers are alike, so a state says only how many hold which kind of permit; episodes
matter only as "this one" and "an earlier one"; time is counted in ticks. So the state space is finite and small, and
`search` can visit all of it.
"""

from __future__ import annotations

from typing import NamedTuple

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
NORMAL, FORCED, DISABLED = "normal", "forced_open", "disabled"
FOREVER = -1
"""An open time that only an operator ends."""
NO_RAMP = -1
SUCCESS, FAILURE, NEUTRAL, ANSWERED = "success", "failure", "neutral", "answered"
VERDICTS = (SUCCESS, FAILURE, NEUTRAL, ANSWERED)


# ---------------------------------------------------------------------------------------------- trip modes
class Streak(NamedTuple):
    """So many failures in a row. Figures: how many there are."""

    failures: int

    def fresh(self):
        return 0

    def fail(self, figures):
        return figures + 1, figures + 1 >= self.failures

    def succeed(self, figures):
        return 0, False

    def answered(self, figures):
        return 0

    def tick(self, figures):
        return figures

    def shown(self, figures):
        return figures, figures


class TimedStreak(NamedTuple):
    """So many failures in a row within so many ticks. Figures: the ages of the last ones, oldest first."""

    failures: int
    within: int

    def fresh(self):
        return ()

    def fail(self, figures):
        ages = (*figures, 0)[-self.failures :]
        return ages, len(ages) == self.failures and ages[0] <= self.within

    def succeed(self, figures):
        return (), False

    def answered(self, figures):
        return ()

    def tick(self, figures):
        # One tick too old is as good as any age beyond.
        return tuple(min(age + 1, self.within + 1) for age in figures)

    def shown(self, figures):
        held = sum(age <= self.within for age in figures)
        return held, held


class Rate(NamedTuple):
    """A share of the calls of the last `buckets` ticks. Figures: (successes, failures) of each bucket, oldest first.

    A window that holds `most` calls takes no more: successes without end would make states without end.
    """

    percent: int
    min_calls: int
    buckets: int
    most: int

    def fresh(self):
        return ((0, 0),) * self.buckets

    def full(self, figures):
        return self.shown(figures)[1] >= self.most

    def _judged(self, figures, successes, failures):
        figures = (*figures[:-1], (figures[-1][0] + successes, figures[-1][1] + failures))
        failed, calls = self.shown(figures)
        return figures, calls >= self.min_calls and 100 * failed >= self.percent * calls

    def fail(self, figures):
        return self._judged(figures, 0, 1)

    def succeed(self, figures):
        return self._judged(figures, 1, 0)

    def answered(self, figures):
        return figures

    def tick(self, figures):
        return (*figures[1:], (0, 0))

    def shown(self, figures):
        failed = sum(failures for _, failures in figures)
        return failed, failed + sum(successes for successes, _ in figures)


class Setting(NamedTuple):
    """A breaker's configuration, times in ticks."""

    trip: Streak | TimedStreak | Rate
    cooldown: int = 2
    lease: int = 2
    probes: int = 1
    successes: int = 1
    answered: str = "reset"
    shadow: bool = False
    ramp: int = 0


# ---------------------------------------------------------------------------------------------- a state
class Probe(NamedTuple):
    """A slot of a half-open circuit: ticks of lease left (0: run out, but nobody has looked), and whether its caller lives."""

    lease: int
    alive: bool


class State(NamedTuple):
    """Everything that can make a difference later.

    plain: callers with a permit of this closed episode. late: with one of an earlier one. lost: with a probe of this
    half-open episode whose slot was taken back when its lease had run out. old: with a probe of an earlier one.
    exempt: with a permit whose report is of no interest.
    ramp: ticks left of the ramp after a closing; 0: over, but nobody has asked since. credit: in parts of one call, of
    which one call has as many as the ramp has ticks.
    """

    phase: str
    figures: object
    mode: str = NORMAL
    wait: int = 0
    good: int = 0
    probes: tuple[Probe, ...] = ()
    plain: int = 0
    lost: int = 0
    late: int = 0
    old: int = 0
    exempt: int = 0
    ramp: int = NO_RAMP
    credit: int = 0

    def callers(self):
        """How many hold a permit and may still report."""
        return self.plain + self.late + self.exempt + self.old + self.out()

    def out(self):
        """How many of them hold a probe of this half-open episode."""
        return self.lost + sum(probe.alive for probe in self.probes)


class Step(NamedTuple):
    """One step: what was done, what came of it, and what was told."""

    action: tuple
    after: State
    told: tuple


def initial(setting):
    """A breaker as registered."""
    return State(CLOSED, setting.trip.fresh())


# ---------------------------------------------------------------------------------------------- steps
def steps(setting, state, callers, *, force_for=(FOREVER, 1)):
    """Every step that is possible with so many callers."""
    if state.callers() < callers:
        yield acquire(setting, state)
    yield from results(setting, state)
    yield from disappearances(state)
    yield tick(setting, state)
    yield reset(setting, state)
    for ticks in force_for:
        yield force_open(setting, state, ticks)
    yield disable(setting, state)
    yield enable(setting, state)


def acquire(setting, state):
    """Somebody asks for a permit."""
    if state.mode == DISABLED:
        return _exempt(state)
    if state.phase == CLOSED:
        if state.ramp > 0:
            credit = state.credit + setting.ramp - state.ramp
            if credit < setting.ramp:
                return _refused(setting, state._replace(credit=credit), state.ramp, ())
            return Step(("acquire",), state._replace(plain=state.plain + 1, credit=credit - setting.ramp), ("plain",))
        return Step(("acquire",), state._replace(plain=state.plain + 1, ramp=NO_RAMP, credit=0), ("plain",))
    told = []
    if state.phase == OPEN:
        if state.wait:
            return _refused(setting, state, state.wait, told)
        state = _moved(setting, state, HALF_OPEN, told, "abandoned", cause="cooled")
    # A lease that has run out gives its slot back to whoever asks next.
    told += [("released", "lost") for probe in state.probes if not probe.lease]
    lost = state.lost + sum(probe.alive for probe in state.probes if not probe.lease)
    state = state._replace(probes=tuple(probe for probe in state.probes if probe.lease), lost=lost)
    if len(state.probes) >= setting.probes:
        return _refused(setting, state, min(probe.lease for probe in state.probes), told)
    told += ["started", "probe"]
    return Step(("acquire",), _with_probes(state, *state.probes, Probe(setting.lease, True)), tuple(told))


def _refused(setting, state, wait, told):
    if setting.shadow and state.mode == NORMAL:
        return _exempt(state, told)
    return Step(("acquire",), state, (*told, ("refused", wait)))


def _exempt(state, told=()):
    return Step(("acquire",), state._replace(exempt=state.exempt + 1), (*told, "exempt"))


def results(setting, state):
    """Somebody who holds a permit reports on it."""
    for verdict in VERDICTS:
        if state.plain and not (verdict != NEUTRAL and _full(setting, state)):
            yield plain_result(setting, state, verdict)
        for place, probe in enumerate(state.probes):
            if probe.alive and probe not in state.probes[:place]:
                yield probe_result(setting, state, place, verdict)
        if state.lost:
            yield lost_result(setting, state, verdict)
        for name in ("late", "old"):
            if getattr(state, name):
                told = () if verdict == NEUTRAL else (("late", False),)
                yield Step((name, verdict), state._replace(**{name: getattr(state, name) - 1}), told)
        if state.exempt:
            yield Step(("exempt", verdict), state._replace(exempt=state.exempt - 1), ())


def _full(setting, state):
    return isinstance(setting.trip, Rate) and setting.trip.full(state.figures)


def plain_result(setting, state, verdict):
    action = ("plain", verdict)
    state = state._replace(plain=state.plain - 1)
    trip, tripped = setting.trip, False
    figures = state.figures
    if verdict == FAILURE:
        figures, tripped = trip.fail(figures)
    elif verdict == SUCCESS:
        figures, tripped = trip.succeed(figures)
    elif verdict == ANSWERED and setting.answered == "reset":
        figures = trip.answered(figures)
    state = state._replace(figures=figures)
    if not tripped:
        return Step(action, state, ())
    told = []
    return Step(action, _opened(setting, state, told, "tripped", setting.cooldown), tuple(told))


def probe_result(setting, state, place, verdict):
    probe = state.probes[place]
    action = ("probe", probe, verdict)
    state = _with_probes(state, *state.probes[:place], *state.probes[place + 1 :])
    if verdict == NEUTRAL:
        return Step(action, state, (("released", "neutral"),))
    told = ["failed" if verdict == FAILURE else "succeeded"]
    return Step(action, _decided(setting, state, verdict, told), tuple(told))


def lost_result(setting, state, verdict):
    action = ("lost", verdict)
    state = state._replace(lost=state.lost - 1)
    if verdict == NEUTRAL:
        return Step(action, state, ())
    told = [("late", True)]
    return Step(action, _decided(setting, state, verdict, told), tuple(told))


def _decided(setting, state, verdict, told):
    """What a report of this half-open episode does to the circuit."""
    if verdict == FAILURE:
        return _opened(setting, state, told, "probe_failed", setting.cooldown)
    if state.good + 1 < setting.successes:
        return state._replace(good=state.good + 1)
    closed = _moved(setting, state, CLOSED, told, "abandoned", cause="probes_succeeded")
    return closed._replace(ramp=setting.ramp, credit=setting.ramp) if setting.ramp else closed


def disappearances(state):
    """Somebody who holds a permit will never report."""
    for name in ("plain", "lost", "late", "old", "exempt"):
        if getattr(state, name):
            yield Step(("vanish", name), state._replace(**{name: getattr(state, name) - 1}), ())
    for place, probe in enumerate(state.probes):
        if probe.alive and probe not in state.probes[:place]:
            left = probe._replace(alive=False)
            after = _with_probes(state, *state.probes[:place], left, *state.probes[place + 1 :])
            yield Step(("vanish", probe), after, ())


def tick(setting, state):
    """Time passes."""
    probes = (probe._replace(lease=max(0, probe.lease - 1)) for probe in state.probes)
    wait = state.wait - 1 if state.wait > 0 else state.wait
    figures = setting.trip.tick(state.figures) if state.phase == CLOSED else state.figures
    ramp = max(state.ramp - 1, min(state.ramp, 0))
    after = state._replace(wait=wait, figures=figures, ramp=ramp, credit=state.credit if ramp > 0 else 0)
    return Step(("tick",), _with_probes(after, *probes), ())


def reset(setting, state):
    """An operator closes the circuit."""
    if state.phase == CLOSED:
        return Step(("reset",), state, ("no change",))
    told = []
    return Step(("reset",), _moved(setting, state, CLOSED, told, "reset", cause="reset"), tuple(told))


def force_open(setting, state, ticks):
    """An operator opens it, for some ticks or for good."""
    told = []
    after = _opened(setting, state, told, "forced_open", ticks, released="reset")
    return Step(("force_open", ticks), after._replace(mode=FORCED), tuple(told))


def disable(setting, state):
    """An operator lets everything pass."""
    if state.mode == DISABLED:
        return Step(("disable",), state, ())
    told = []
    after = _moved(setting, state, CLOSED, told, "reset", cause="disabled")
    return Step(("disable",), after._replace(mode=DISABLED), tuple(told))


def enable(setting, state):
    """An operator ends a forced opening, or a disabling."""
    if state.mode == NORMAL:
        return Step(("enable",), state, ())
    told = []
    return Step(("enable",), _moved(setting, state, CLOSED, told, "reset", cause="enabled"), tuple(told))


# ---------------------------------------------------------------------------------------------- moving
def _opened(setting, state, told, cause, ticks, released="abandoned"):
    return _moved(setting, state, OPEN, told, released, cause=cause)._replace(wait=ticks)


def _moved(setting, state, phase, told, released, *, cause):
    """A new episode: whoever holds a permit is late from now on, every slot is given back."""
    told += [("released", released) for _ in state.probes]
    told.append((state.phase, phase, cause))
    late, old = state.late + state.plain, state.old + state.out()
    return State(phase, setting.trip.fresh(), late=late, old=old, exempt=state.exempt)


def _with_probes(state, *probes):
    """Slots are alike: their order means nothing."""
    return state._replace(probes=tuple(sorted(probes)))
