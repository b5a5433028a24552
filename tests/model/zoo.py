"""Wrong breakers, each made by changing a line of a right one."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import NamedTuple

from resilience._context import OwnMarks
from resilience._core.circuit import Circuit
from resilience._core.moving import Moving
from resilience._core.published import Published
from resilience._core.slots import Slots
from resilience._core.trip import Streak, TimedStreak
from resilience._core.view import View, slot_refusal
from resilience._core.window import RollingWindow
from resilience._engine import streams as engine_streams
from resilience._engine import timers, world_sync
from resilience._engine.stream_call import StreamCall
from resilience._engine.world_async_streams import AsyncStreamWorld
from resilience._engine.world_streams import StreamWorld
from resilience._policies import verdicts
from resilience._policies.breaker import BreakerLayers
from resilience._policies.bulkhead import SharedBulkhead
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience._policies.locked import LockedCircuit
from resilience._policies.marks import counts_first
from resilience._policies.retry import RetryLayers
from resilience._registry import Registry

MODEL = "the model"


class Mutant(NamedTuple):
    """A line of `function` (of a class, or of a module) that says something else; `caught` names a test, or the model."""

    what: str
    owner: object
    function: str
    line: str
    wrong: str
    caught: str = MODEL

    def put(self, monkeypatch):
        """Put the wrong function wherever the right one is known."""
        right, wrong = inspect.getattr_static(self.owner, self.function), self.make()
        monkeypatch.setattr(self.owner, self.function, wrong)
        if inspect.ismodule(self.owner):
            for module in [module for name, module in sys.modules.items() if name.startswith("resilience.")]:
                for name in [name for name, known in vars(module).items() if known is right]:
                    monkeypatch.setattr(module, name, wrong)

    def make(self):
        """The wrong function. An edit that does not fit any more is an error: the zoo has to follow the code."""
        right = inspect.getattr_static(self.owner, self.function)
        source = textwrap.dedent(inspect.getsource(right))
        assert source.count(self.line) == 1, (
            f"{self.what}: the line stands {source.count(self.line)} times in the source"
        )
        namespace = dict(vars(sys.modules[right.__module__]))
        exec(compile(source.replace(self.line, self.wrong), f"<{self.what}>", "exec"), namespace)
        return namespace[self.function]


ZOO = [
    # ------------------------------------------------------------------------------------------ late results
    Mutant(
        "a late success closes OPEN",
        Circuit,
        "record",
        "self._late(episode, verdict, accepted=False)",
        "self._move(Input.RESET, now, time_ns) if self._state is OPEN else self._late(episode, verdict, accepted=False)",
    ),
    Mutant(
        "a late failure starts the cooldown anew",
        Circuit,
        "record",
        "self._late(episode, verdict, accepted=False)",
        "self._late(episode, verdict, accepted=False); self._opened_at = now; self._store()",
    ),
    Mutant(
        "a result of an earlier closed episode counts in this one",
        Circuit,
        "record",
        "if episode != self.episode or self._state is not CLOSED:",
        "if self._state is not CLOSED:",
    ),
    Mutant(
        "a probe of an earlier half-open episode decides this one",
        Circuit,
        "_settle_probe",
        "if permit.episode != self.episode:",
        "if permit.episode != self.episode and self._state in (CLOSED, OPEN):",
    ),
    Mutant("a permit may be settled twice", Circuit, "settle", "permit.settled = True", "permit.settled = False"),
    Mutant(
        "the episode stays when it closes", Moving, "_move", "self.episode += 1", "self.episode += after is not CLOSED"
    ),
    # ------------------------------------------------------------------------------------------ neutral outcomes
    Mutant(
        "a neutral probe keeps its slot",
        Circuit,
        "_settle_probe",
        "        self._probes.remove(permit)\n    if verdict is NEUTRAL:",
        "        verdict is NEUTRAL or self._probes.remove(permit)\n    if verdict is NEUTRAL:",
    ),
    Mutant(
        "a neutral probe closes",
        Circuit,
        "_settle_probe",
        "if verdict is NEUTRAL:\n        if live:",
        "if False:\n        if live:",
    ),
    Mutant(
        "a neutral result ends a streak",
        Circuit,
        "record",
        "if verdict is NEUTRAL:\n        return",
        "if verdict is NEUTRAL:\n        verdict = SUCCESS",
    ),
    Mutant(
        "a neutral probe is not told",
        Circuit,
        "_settle_probe",
        "self._release(end)\n",
        "pass\n",
    ),
    # ------------------------------------------------------------------------------------------ leases
    Mutant(
        "no lease",
        Circuit,
        "_acquire_probe",
        "permit.lease = max(self._config.probe_lease, lease)",
        "permit.lease = FOREVER",
    ),
    Mutant(
        "a lease shorter than a slow call can never close",
        Circuit,
        "_settle_probe",
        "    if not live:\n",
        "    if not live:\n        return\n    if not live:\n",
    ),
    Mutant(
        "a lost probe's failure is forgotten",
        Circuit,
        "_settle_probe",
        "    if verdict is FAILURE:\n",
        "    if verdict is FAILURE and not live:\n        return\n    if verdict is FAILURE:\n",
    ),
    Mutant("a lost probe is not told", Circuit, "_acquire_probe", "self._drop_lost(now)", "pass"),
    # ------------------------------------------------------------------------------------------ open
    Mutant("OPEN is left before its time", Circuit, "_acquire_probe", "if left > 0:", "if left > 1:"),
    Mutant("OPEN is left after its time", Circuit, "_acquire_probe", "if left > 0:", "if left >= 0:"),
    Mutant("the door opens one moment late", View, "refusal", "waited >= self.open_for", "waited > self.open_for"),
    Mutant(
        "a refusal tells the whole open time",
        View,
        "refusal",
        "self.open_for - waited",
        "self.open_for",
    ),
    Mutant(
        "a failed probe keeps the old opening",
        Moving,
        "_move",
        "self._opened_at, self._opened_ns = now, time_ns",
        "self._opened_at = now if before is CLOSED else self._opened_at; self._opened_ns = time_ns",
    ),
    Mutant(
        "compiled wrappers are refused beyond the open time",
        Published,
        "_store",
        "self._opened_at + self.open_span if refusing",
        "self._opened_at + 2 * self.open_span if refusing",
    ),
    Mutant(
        "the door stays open when the circuit opens",
        Published,
        "_store",
        "passing = closed and",
        "passing = not self._probes and",
    ),
    Mutant(
        "compiled wrappers pass whatever an operator says",
        Published,
        "_store",
        "closed and self._mode in BY_ITSELF and",
        "closed and",
    ),
    # ------------------------------------------------------------------------------------------ half-open
    Mutant(
        "a failed probe does not open",
        Circuit,
        "_settle_probe",
        "self._move(Input.PROBE_FAILED, now, time_ns, fault)",
        "self._store()",
    ),
    Mutant(
        "one success closes, whatever is asked for",
        Circuit,
        "_settle_probe",
        ">= self._config.half_open_successes",
        ">= 1",
    ),
    Mutant(
        "one success too many is asked for",
        Circuit,
        "_settle_probe",
        ">= self._config.half_open_successes",
        "> self._config.half_open_successes",
    ),
    Mutant(
        "successes of an earlier half-open episode count",
        Moving,
        "_move",
        "self._probe_successes = 0",
        "pass",
    ),
    Mutant(
        "probes outlive their episode",
        Moving,
        "_move",
        "self._drop_probes(ProbeEnd.RESET if cause in MANUAL else ProbeEnd.ABANDONED)",
        "pass",
    ),
    Mutant(
        "one probe too many",
        Circuit,
        "_acquire_probe",
        "slot_refusal(self._probes, self._config.half_open_probes, now)",
        "slot_refusal(self._probes, self._config.half_open_probes + 1, now)",
    ),
    Mutant(
        "an answer does not count as a probe's success",
        Circuit,
        "_settle_probe",
        "self._probe_successes += 1",
        "self._probe_successes += verdict is SUCCESS",
    ),
    Mutant(
        "a half-open refusal tells the longest lease",
        sys.modules[slot_refusal.__module__],
        "slot_refusal",
        "rests[len(rests) - limit]",
        "rests[-1]",
    ),
    # ------------------------------------------------------------------------------------------ ramps
    Mutant(
        "an operator's closing begins a ramp",
        Moving,
        "_move",
        "if cause is Input.PROBES_SUCCEEDED and",
        "if",
    ),
    Mutant("a ramp outlives its episode", Moving, "_move", "self._ramp = None\n", "pass\n"),
    Mutant(
        "compiled wrappers pass a ramp",
        Published,
        "_store",
        "self._ramp is None and ",
        "",
    ),
    Mutant("a ramp that is over goes on", Circuit, "_acquire_on", "self._ramp = None", "pass"),
    Mutant("the end of a ramp is not published", Circuit, "_acquire_on", "self._store()", "pass"),
    Mutant("a ramp lets one call too many pass", Circuit, "_acquire_on", "self._credit -= 1.0", "self._credit -= 0.5"),
    Mutant("a ramp is a wall", Circuit, "_acquire_on", "self._credit += ramp.share(now)", "pass"),
    Mutant(
        "the first call after a closing is refused",
        Moving,
        "_move",
        "self._credit = FIRST_CREDIT",
        "self._credit = 0.0",
    ),
    Mutant("a refusal tells the whole ramp", Circuit, "_acquire_on", "return left", "return ramp.seconds"),
    # ------------------------------------------------------------------------------------------ streaks
    Mutant("a streak trips one late", Streak, "fail", ">= self.limit", "> self.limit"),
    Mutant("a streak trips one early", Streak, "fail", ">= self.limit", ">= self.limit - 1"),
    Mutant(
        "a streak counted freely trips one late", Circuit, "strike", "number >= streak.limit", "number > streak.limit"
    ),
    Mutant("a success does not end a streak", Streak, "succeed", "self.answered()", "pass"),
    Mutant(
        "a success counted freely does not end a streak",
        Circuit,
        "end_streak",
        "streak.strikes = Strikes(episode)",
        "pass",
    ),
    Mutant(
        "a free failure is counted in a later episode",
        Circuit,
        "strike",
        "if self.closed != episode or not streak.limit:",
        "if not streak.limit:",
    ),
    Mutant(
        "a streak outlives its episode", Moving, "_move", "self._trip = self._trip.renewed(self._successes())", "pass"
    ),
    Mutant(
        "an answer ends the streak although it is to be ignored",
        Circuit,
        "record",
        'if self._config.answered == "reset":',
        "if True:",
    ),
    Mutant(
        "a tumbling window: the first failure starts it",
        TimedStreak,
        "fail",
        "times.append(now)",
        "times.clear() if times and now - times[0] > self._within else None; times.append(now)",
    ),
    Mutant("a failure aged exactly `within` is out", TimedStreak, "fail", "<= self._within", "< self._within"),
    Mutant("a timed streak is not ended by a success", TimedStreak, "succeed", "self.answered()", "pass"),
    # ------------------------------------------------------------------------------------------ rates
    Mutant("a rate must be exceeded", RollingWindow, "_judge", ">= self._rate", "> self._rate"),
    Mutant(
        "one call more than the minimum", RollingWindow, "_judge", "calls >= self._min_calls", "calls > self._min_calls"
    ),
    Mutant(
        "a rate is not judged on the success that reaches the minimum",
        RollingWindow,
        "succeed",
        "return self._judge(successes)",
        "self._judge(successes)\n    return False",
    ),
    Mutant(
        "that success is not even reported",
        RollingWindow,
        "_judge",
        "self.clean = enough or not (failures or slow)",
        "self.clean = True",
    ),
    Mutant(
        "a tumbling rate: all buckets go at once",
        RollingWindow,
        "_roll",
        "kept = [part for part in self._closed if part.number >= oldest]",
        "kept = []",
    ),
    Mutant("old buckets never leave", RollingWindow, "_roll", "if part.number >= oldest]", "]"),
    Mutant(
        "the bucket that ends is lost",
        RollingWindow,
        "_roll",
        "if closing.number >= oldest and (closing.successes or closing.failures):",
        "if False:",
    ),
    Mutant(
        "a new bucket is not looked at before its first failure",
        RollingWindow,
        "_roll",
        "self.edge = first_moment_of(number + 1, self._bucket)",
        "self.edge = NEVER",
    ),
    Mutant(
        "a slow probe closes",
        Circuit,
        "_settle_probe",
        "if slow or verdict is FAILURE:",
        "if verdict is FAILURE:",
        "tests/contract/test_slow_calls.py::test_a_slow_probe_has_failed",
    ),
    Mutant(
        "slow failures count twice",
        RollingWindow,
        "fail",
        "self._failures += 1",
        "self._failures += 1; self._slow += 1",
        "tests/contract/test_slow_calls.py::test_slow_failures_are_failures",
    ),
    Mutant(
        "a success must be slower than slow",
        Circuit,
        "_count_success",
        "took >= self.slow_from",
        "took > self.slow_from",
        "tests/contract/test_slow_calls.py::test_slow_from_exactly_the_limit",
    ),
    # ------------------------------------------------------------------------------------------ operators
    Mutant("a reset keeps a forced opening", Circuit, "reset", "self._mode = self._own_mode()", "pass"),
    Mutant(
        "a reset of a closed circuit says that it did something",
        Circuit,
        "reset",
        "return False",
        "return True",
    ),
    Mutant("a forced opening with an end stays forced", Moving, "_move", "elif self._mode is FORCED:", "elif False:"),
    Mutant("a disabled breaker counts", Circuit, "acquire", "exempt=self._mode is DISABLED", "exempt=False"),
    Mutant("a shadow refuses", Circuit, "acquire", "if self._mode is SHADOW and", "if False and"),
    Mutant("enable ends nothing but a forcing", Circuit, "enable", " or self._mode is DISABLED", ""),
    # ------------------------------------------------------------------------------------------ around the circuit
    Mutant(
        "callbacks run under the lock",
        LockedCircuit,
        "_hand_over_events",
        "self._hub.put(event)",
        "self._hub.put(event); self._hub.deliver()",
        "tests/contract/test_events_and_logs.py::test_slow_sink_holds_no_lock",
    ),
    Mutant(
        "a report from inside the critical section is lost",
        LockedCircuit,
        "_from_inside",
        "self._inbox.append((act, args))",
        "pass",
        "tests/policies/test_circuit_breaker.py::test_a_report_from_inside_the_section",
    ),
    Mutant(
        "a report to another name waits for its lock in the middle of a change",
        LockedCircuit,
        "_section",
        "me in CHANGING",
        "CHANGING.get(me) is self",
        "tests/races/test_two_names.py::test_two_changes_that_report_to_each_other",
    ),
    Mutant(
        "a report to another name is forgotten",
        LockedCircuit,
        "_section",
        "circuit.make_good()",
        "pass",
        "tests/races/test_two_names.py::test_a_report_to_another_name_is_counted_before_the_call_ends",
    ),
    Mutant(
        "one exception counts at every site",
        sys.modules[counts_first.__module__],
        "counts_first",
        "return False",
        "return True",
        "tests/contract/test_nested_sites.py::test_one_exception_object_counts_once",
    ),
    Mutant(
        "a call inside a probe asks for itself",
        CircuitBreaker,
        "acquire",
        "if is_probing(self, circuit.episode):",
        "if False:",
        "tests/contract/test_nested_sites.py::test_call_inside_a_probe_shares_it",
    ),
    Mutant(
        "a caller's cancel counts",
        verdicts,
        "interrupted_verdict",
        "return Verdict.NEUTRAL, None\n    in_flight",
        "return Verdict.FAILURE, HUNG\n    in_flight",
        "tests/contract/test_p17.py::test_callers_cancel_never_counts",
    ),
    Mutant(
        "a short stay under a deadline counts",
        sys.modules["resilience._core.deadline"],
        "is_evidence",
        "in_flight >= length / 2",
        "True",
        "tests/contract/test_p17.py::test_half_of_the_deadline_decides",
    ),
    Mutant(
        "an expiry swallows the caller's cancel",
        timers,
        "is_ours",
        "return task.uncancel() <= deadline.noted",
        "task.uncancel(); return True",
        "tests/contract/test_asyncio_timeout_equality.py::test_second_cancel_after_the_expiry",
    ),
    Mutant(
        "a slot is a counter that a stale release lifts",
        world_sync,
        "_leave_slot",
        "call.slot = None",
        "pass",
        "tests/contract/test_deadlines.py::test_orphan_keeps_its_slot",
    ),
    Mutant(
        "a newcomer overtakes the line",
        Slots,
        "take",
        "None if self.queue else super().take()",
        "super().take()",
        "tests/policies/test_bulkhead.py::test_nobody_overtakes_the_line",
    ),
    Mutant(
        "a waiter that was granted and gave up keeps the slot",
        SharedBulkhead,
        "give_up",
        "gave_up = ticket.win()",
        "gave_up = ticket.win() or True",
        "tests/contract/test_bulkhead.py::test_cancelled_waiter_never_loses_a_slot",
    ),
    Mutant(
        "a probe's failure is retried",
        RetryLayers,
        "decide",
        "if fault is None or call.probed:",
        "if fault is None:",
        "tests/contract/test_order_and_door.py::test_failed_probe_is_not_retried_even_where_the_cooldown_would_pass",
    ),
    Mutant(
        "nested retries multiply",
        RetryLayers,
        "go_on",
        "RETRYING.set(repeat)",
        "pass",
        "tests/contract/test_retry.py::test_nested_retries_add",
    ),
    Mutant(
        "a retry goes on against an open circuit's refusal",
        RetryLayers,
        "go_on",
        "if following.refused_by is not None:",
        "if False:",
        "tests/contract/test_order_and_door.py::test_refusal_during_a_retry_lets_the_last_real_exception_leave",
    ),
    Mutant(
        "backoff has no cap",
        sys.modules["resilience._core.schedule"],
        "backoff",
        "base = min(longest, initial * 2.0 ** min(attempt - 1, 1000))",
        "base = initial * 2.0 ** min(attempt - 1, 1000)",
        "tests/contract/test_retry.py::test_backoff_doubles_to_its_cap",
    ),
    Mutant(
        "a fallback answers somebody else's refusal",
        BreakerLayers,
        "door",
        "outcome.refused_by is self and",
        "outcome.refused_by is not None and",
        "tests/policies/test_breaker.py::test_a_refusal_of_another_breaker_is_not_bypassed",
    ),
    # ------------------------------------------------------------------------------------------ streams
    Mutant(
        "a stream is begun anew after its first item",
        StreamWorld,
        "_items",
        "call.delivered = True",
        "pass",
        "tests/contract/test_stream_retry.py::test_after_the_first_item_the_error_leaves",
    ),
    Mutant(
        "an async stream is begun anew after its first item",
        AsyncStreamWorld,
        "_items",
        "call.delivered = True",
        "pass",
        "tests/contract/test_stream_retry.py::test_after_the_first_item_the_error_leaves",
    ),
    Mutant(
        "a stream is given up, not closed",
        StreamWorld,
        "_items",
        "failed = closing(stream)",
        "failed = None",
        "tests/contract/test_stream_closing.py::test_closing_lets_the_stream_tidy_up",
    ),
    Mutant(
        "a plan is thrown the GeneratorExit of its consumer",
        engine_streams,
        "_throw_closed",
        "plan.throw(Closed())",
        "plan.throw(GeneratorExit())",
        "tests/contract/test_stream_closing.py::test_an_error_on_closing_counts_and_leaves",
    ),
    Mutant(
        "a limit that ran out in the consumer's hands is not told",
        StreamCall,
        "begin_step",
        "return Passed(limit.deadline)",
        "pass",
        "tests/contract/test_stream_limits.py::test_the_consumers_time_belongs_to_a_budget",
    ),
    Mutant(
        "the consumer's time is the remote's",
        StreamCall,
        "since",
        "return max(started, self.stepped)",
        "return started",
        "tests/contract/test_stream_limits.py::test_half_of_the_budget_decides",
    ),
    Mutant(
        "the consumer shares the probe of its stream",
        OwnMarks,
        "take_off",
        "PROBING.set(probing)",
        "pass",
        "tests/contract/test_stream_context.py::test_the_consumers_own_calls_do_not_share_it",
    ),
    Mutant(
        "a stream's marks end with its first step",
        OwnMarks,
        "put_on",
        "PROBING.set((*probing, *self._probing))",
        "pass",
        "tests/contract/test_stream_context.py::test_calls_inside_a_probes_steps_share_it",
    ),
    Mutant(
        "a stream stays under the deadline of its first consumer",
        OwnMarks,
        "put_on",
        "self._outermost.outer = deadline",
        "pass",
        "tests/contract/test_stream_context.py::test_remaining_is_clipped_step_by_step",
    ),
    Mutant(
        "a stream between two steps cancels the task that had it last",
        timers.SteppedExpiry,
        "end_step",
        "task, self._task = self._task, None",
        "task = self._task",
        "tests/contract/test_stream_limits.py::test_a_budget_never_cancels_the_consumer",
    ),
    Mutant(
        "an async stream whose event loop is gone keeps its slot",
        engine_streams.Held,
        "__del__",
        "self.leave()",
        "pass",
        "tests/contract/test_stream_closing.py::test_dropped_with_its_loop_closed",
    ),
    Mutant(
        "the last registration wins",
        Registry,
        "breaker",
        "found = self._breakers.setdefault(name, made)",
        "found = self._breakers[name] = made",
        "tests/races/test_two_names.py::test_registering_at_once",
    ),
    Mutant(
        "a later registration wins",
        Registry,
        "breaker",
        "found = self._breakers.get(name)",
        "found = self._breakers.pop(name, None) and None",
        "tests/contract/test_registry.py::test_first_registration_wins",
    ),
]
