"""Steps and settings from a seed: what may happen to a breaker, as tuples."""

from __future__ import annotations

from resilience import BreakerConfig, Consecutive, FailureRate, Fault, FaultFlag, FaultKind

DOWNSTREAM, TRANSIENT = FaultKind.DOWNSTREAM, FaultKind.TRANSIENT
CUT = "cut short"
"""The caller gave up: the outcome says nothing."""
PASSED_ON = "passed on"
"""What the last call inside has raised goes on to the caller."""
FAILING = (
    Fault(TRANSIENT),
    Fault(DOWNSTREAM),
    Fault(TRANSIENT, {FaultFlag.AMBIGUOUS}, status=504),
    *(Fault(TRANSIENT, status=503, retry_after=seconds) for seconds in (0.0, 1.0, 5.0, 99.0)),
)
OUTCOMES = (
    *(None,) * 6,
    *FAILING,
    *FAILING,
    Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=404),
    Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=401),
    Fault(TRANSIENT, {FaultFlag.CONTENTION}),
    Fault(TRANSIENT, {FaultFlag.SATURATION}),
    Fault(FaultKind.VALIDATION),
    Fault(FaultKind.INTERNAL),
    CUT,
    CUT,
)


SLOWNESS = (
    *({},) * 3,
    *({"slow_call": seconds} for seconds in (0.25, 1.0, 4.0)),
    *({"slow_call": 0.5, "slow_rate": share} for share in (0.3, 1.0)),
)
WAITS = (0.0, 0.25, 0.25, 0.5, 1.0, 2.75, 4.0, 8.0, 40.0)
FORCED_FOR = (None, 0.5, 6.0)
KINDS = {
    "call": 12,
    "outer": 2,
    "begin": 4,
    "finish": 4,
    "again": 1,
    "wait": 5,
    "as_told": 2,
    "act": 1,
    "reconfigure": 0.4,
}
MODES = "streak", "within", "rate"


def some_steps(rng, number):
    """Steps as tuples; a step that needs what is not there does nothing, so any part of a list is a list."""
    chance, pick, many = rng.random, rng.choice, len(OUTCOMES)
    for kind in rng.choices(tuple(KINDS), KINDS.values(), k=number):
        if kind == "call":
            yield kind, int(chance() * 4), OUTCOMES[int(chance() * many)], False, ()
        elif kind == "wait":
            yield kind, pick(WAITS)
        elif kind == "begin":
            yield kind, int(chance() * 2)
        elif kind in ("finish", "again"):
            yield kind, int(chance() * 8), OUTCOMES[int(chance() * many)]
        elif kind == "as_told":
            yield kind, pick((0.0, 0.0, -0.25, 0.25))
        elif kind == "reconfigure":
            yield kind, some_config(rng, pick(MODES))
        elif kind == "act":
            yield pick(("reset", "force", "disable", "enable", "enable")), pick(FORCED_FOR)
        else:
            inside = tuple(some_steps(rng, 1 + int(chance() * 3)))
            yield "call", int(chance() * 4), pick((*OUTCOMES, *(PASSED_ON,) * 10)), chance() < 0.3, inside


def some_config(rng, mode):
    pick = rng.choice
    bucket = pick((0.25, 1.0, 3.0, 0.1, 0.7))
    trip = {
        "streak": lambda: Consecutive(pick((1, 2, 3, 5))),
        "within": lambda: Consecutive(pick((1, 2, 3, 5)), within=pick((0.5, 2.0, 4.0, 8.0))),
        "rate": lambda: FailureRate(
            pick((0.25, 1 / 3, 0.5, 0.75, 1.0)),
            window=bucket * pick((1, 2, 5)),
            bucket=bucket,
            min_calls=pick((1, 2, 4, 6)),
            **pick(SLOWNESS),
        ),
    }[mode]()
    return BreakerConfig(
        trip,
        cooldown=pick((0.5, 4.0)),
        half_open_probes=pick((1, 1, 2, 3)),
        half_open_successes=pick((1, 1, 2, 3)),
        trip_on=pick(((TRANSIENT, DOWNSTREAM), (TRANSIENT, DOWNSTREAM), (TRANSIENT,), (TRANSIENT, FaultKind.INTERNAL))),
        trip_on_status=pick(((), (401,))),
        answered=pick(("reset", "ignore")),
        probe_lease=pick((0.5, 8.0)),
        max_cooldown=pick((4.0, 6.0)),
        honour_retry_after=pick((True, True, False)),
        shadow=pick((False, False, False, True)),
        ramp=pick((None, None, 0.5, 4.0)),
    )
