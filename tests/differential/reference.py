"""A circuit breaker written from the contract (sections 1, 2 and 4) and from nothing else.

It keeps every result of a closed episode and looks at all that may matter each time. It
shares no code with the library, only its settings and its words; `now` is in seconds.
"""

from math import floor, inf

from resilience import BreakerMode, CircuitState, Consecutive, FailureRate, FaultFlag, FaultKind

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
NORMAL, FORCED, DISABLED, SHADOW = tuple(BreakerMode)[:4]
SUCCESS, FAILURE, ANSWERED, NEUTRAL = "success", "failure", "answered", "neutral"
PROBES = "started", "succeeded", "failed", "released"
TOTALS = ("rejected", "bypassed", SUCCESS, FAILURE, ANSWERED, *PROBES, "late", "accepted", "would_refuse", "slow")


def verdict_of(fault, config):
    """What an outcome says about the remote; no fault is a success."""
    if fault is None:
        return SUCCESS
    if fault.flags & {FaultFlag.SATURATION, FaultFlag.LOCAL}:
        return NEUTRAL
    if fault.status in config.trip_on_status:
        return FAILURE
    remote = fault.kind in (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)
    if remote and fault.flags & {FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION}:
        return ANSWERED
    return FAILURE if fault.kind in config.trip_on else NEUTRAL


def shape(trip):
    """What has to be the same for figures to go on counting."""
    return ("rate", trip.bucket) if isinstance(trip, FailureRate) else ("streak", trip.within is None)


class Slip:
    """A permit, as the reference gives it."""

    def __init__(self, episode, exempt=False):
        self.episode, self.exempt, self.probe, self.settled = episode, exempt, False, False


class Reference:
    """One breaker."""

    def __init__(self, config, now):
        self.config, self.own_mode = config, SHADOW if config.shadow else NORMAL
        self.state, self.mode, self.episode, self.changed_ns = CLOSED, self.own_mode, 1, round(now * 1e9)
        self.opened_at = self.opened_ns = self.open_for = self.frozen = self.last_failure = None
        self.results, self.probes, self.good_probes, self.ramp_from = [], [], 0, None
        self.totals = dict.fromkeys(TOTALS, 0)

    def figures(self, now):
        """Failures, calls, slow calls and their rates that would count at `now`; as at the trip while not closed."""
        trip, failures, calls, slow = self.config.trip, 0, 0, 0
        if self.state is not CLOSED:
            return self.frozen
        if isinstance(trip, Consecutive):
            for at, verdict, _ in reversed(self.results):
                if verdict is not FAILURE:
                    break
                failures += trip.within is None or now - at <= trip.within
            # Within a time no more are remembered than would open.
            failures = failures if trip.within is None else min(failures, trip.failures)
            return failures, failures, None, 0, None
        oldest = floor(now / trip.bucket) - round(trip.window / trip.bucket) + 1
        for at, verdict, was_slow in reversed(self.results):
            if floor(at / trip.bucket) < oldest:
                break
            calls += verdict is not ANSWERED
            failures += verdict is FAILURE
            slow += was_slow and trip.slow_call is not None
        slow_rate = None if trip.slow_call is None else slow / calls if calls else 0.0
        return failures, calls, failures / calls if calls else 0.0, slow, slow_rate

    def looks(self):
        """Whether it wants to know how long attempts take; of one that began before that nobody knows."""
        return isinstance(self.config.trip, FailureRate) and self.config.trip.slow_call is not None

    def trips(self, verdict, now):
        """Whether the result just added opens the circuit."""
        trip, (failures, calls, rate, _, slow_rate) = self.config.trip, self.figures(now)
        if isinstance(trip, Consecutive):
            return verdict is FAILURE and failures >= trip.failures
        too_many = rate >= trip.rate or (slow_rate is not None and slow_rate >= trip.slow_rate)
        return verdict is not ANSWERED and calls >= trip.min_calls and too_many

    def move(self, state, now, open_for=None):
        """Begin a new episode: by results, by time, or by an operator."""
        self.frozen = self.figures(now)
        self.totals["released"] += len(self.probes)
        self.results, self.probes, self.good_probes, self.ramp_from = [], [], 0, None
        self.state, self.changed_ns, self.episode = state, round(now * 1e9), self.episode + 1
        if state is not HALF_OPEN:
            self.opened_at, self.open_for, self.opened_ns = now, open_for, self.changed_ns if state is OPEN else None

    def open(self, fault, now):
        config, hint = self.config, fault and fault.retry_after
        longer = hint is not None and config.honour_retry_after and hint > config.cooldown
        self.move(OPEN, now, min(hint, config.max_cooldown) if longer else config.cooldown)

    def wait(self, now):
        """Seconds until the machine would let a call pass, None if it would now."""
        rests, free = [], 1
        if self.state is OPEN:
            rests = [inf if self.open_for is None else self.open_for - (now - self.opened_at)]
        elif self.state is HALF_OPEN:
            rests, free = [slip.lease - (now - slip.leased_at) for slip in self.probes], self.config.half_open_probes
        rests = sorted(rest for rest in rests if rest > 0)
        return rests[len(rests) - free] if len(rests) >= free else None

    def refusal(self, now):
        """The same for a caller: a breaker in shadow refuses nothing."""
        return None if self.mode is SHADOW else self.wait(now)

    def ramp_left(self, now):
        """Seconds until everything passes again after a closing by probes; 0 outside of a ramp."""
        return 0 if self.ramp_from is None else max(0, self.ramp - (now - self.ramp_from))

    def wait_on_ramp(self, now):
        """The rest of the ramp, where this ask does not pass; each adds its share, and whoever makes it whole passes."""
        left = self.ramp_left(now)
        if left:
            self.credit += (now - self.ramp_from) / self.ramp
            if self.credit < 1:
                return left
            self.credit -= 1
        return None

    def ask(self, now):
        """A slip, or the seconds of the refusal."""
        answer = self.answer(now)
        if type(answer) is Slip:
            answer.timed = self.looks()
        return answer

    def answer(self, now):
        wait = self.wait_on_ramp(now) if self.state is CLOSED else self.wait(now)
        if wait is not None and self.mode is not SHADOW:
            return wait
        self.totals["would_refuse"] += wait is not None
        if self.state is CLOSED or wait is not None:
            return Slip(self.episode, exempt=wait is not None or self.mode is DISABLED)
        if self.state is OPEN:
            self.move(HALF_OPEN, now)
            self.mode = self.own_mode
        kept = [probe for probe in self.probes if now - probe.leased_at < probe.lease]
        self.totals["released"] += len(self.probes) - len(kept)
        slip = Slip(self.episode)
        slip.probe, slip.leased_at, slip.lease = True, now, self.config.probe_lease
        self.probes = [*kept, slip]
        self.totals["started"] += 1
        return slip

    def settle(self, slip, verdict, fault, took, now):
        """Report the result of what a slip was given for, `took` seconds ago."""
        if slip.settled or slip.exempt:
            return
        slip.settled, in_time = True, slip in self.probes
        slow = verdict is SUCCESS and slip.timed and self.looks() and took >= self.config.trip.slow_call
        if in_time:
            self.probes.remove(slip)
            ends = {SUCCESS: "succeeded", ANSWERED: "succeeded", FAILURE: "failed", NEUTRAL: "released"}
            self.totals["failed" if slow else ends[verdict]] += 1
        if verdict is NEUTRAL:
            return
        current = slip.episode == self.episode
        self.totals["late"] += not current or (slip.probe and not in_time)
        if not current:
            return
        self.totals["accepted"] += slip.probe and not in_time
        self.totals[verdict] += 1
        self.totals["slow"] += slow
        self.last_failure = (fault.kind, round(now * 1e9)) if verdict is FAILURE else self.last_failure
        if not slip.probe and (verdict is not ANSWERED or self.config.answered == "reset"):
            self.results.append((now, verdict, slow))
        if self.trips(verdict, now) if not slip.probe else slow or verdict is FAILURE:
            self.open(fault, now)
        elif slip.probe:
            self.good_probes += 1
            if self.good_probes >= self.config.half_open_successes:
                self.move(CLOSED, now)
                self.ramp, self.ramp_from, self.credit = self.config.ramp, now if self.config.ramp else None, 1

    def reset(self, now):
        if self.state is CLOSED:
            return False
        self.last_failure = None
        return self.act(self.own_mode, CLOSED, now)

    def act(self, mode, state, now, seconds=None):
        """Force open, disable, enable: a mode and the state that goes with it."""
        self.mode = mode
        self.move(state, now, seconds)
        return True

    def disable(self, now):
        return self.mode is not DISABLED and self.act(DISABLED, CLOSED, now)

    def enable(self, now):
        return self.mode in (FORCED, DISABLED) and self.act(self.own_mode, CLOSED, now)

    def reconfigure(self, config, now):
        """Other settings: what was counted goes on counting if they count the same way, as far as they remember it."""
        before, after = self.config.trip, config.trip
        if shape(before) != shape(after):
            self.results = []
        elif before != after and isinstance(after, FailureRate):
            for trip in (before, after):
                oldest = floor(now / trip.bucket) - round(trip.window / trip.bucket) + 1
                self.results = [result for result in self.results if floor(result[0] / trip.bucket) >= oldest]
        elif before != after and after.within is not None:
            self.results = self.results[-min(before.failures, after.failures) :]
        self.config, self.own_mode = config, SHADOW if config.shadow else NORMAL
        self.mode = self.own_mode if self.mode in (NORMAL, SHADOW) else self.mode

    def status(self, now):
        """Whether it is open to a caller, and every figure of a status."""
        wait, due = self.refusal(now), None
        if self.state is OPEN and self.open_for is not None:
            due = self.opened_ns + round(self.open_for * 1e9)
        retry_after = (None if self.state is CLOSED else 0.0) if wait is None else None if wait == inf else wait
        about = wait is not None, self.state, self.mode, *self.figures(now), self.opened_ns, self.changed_ns, due
        until = self.changed_ns + round(self.ramp * 1e9) if self.ramp_left(now) else None
        return (*about, retry_after, *self.totals.values(), until, self.last_failure)
