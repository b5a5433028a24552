"""Contract section 9: the registry."""

from __future__ import annotations

import logging
import pickle
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitState,
    ConfigurationError,
    Consecutive,
    FaultKind,
    Registry,
    breaker,
    bulkhead,
    default_registry,
    use_registry,
)
from resilience._core.events import ConfigConflict


def messages(caplog):
    return [record.getMessage() for record in caplog.records]


def test_first_registration_wins(registry):
    """Section 9: a later registration returns the existing breaker and changes nothing."""
    first = registry.breaker("api", BreakerConfig(cooldown=10))
    second = registry.breaker("api", BreakerConfig(cooldown=20))

    assert first is second
    assert 10.0 == second.config.cooldown


def test_conflict_logs_one_warning_with_the_difference(registry, caplog):
    """Section 9: ONE warning with the field-by-field difference."""
    caplog.set_level(logging.DEBUG, "resilience")
    registry.breaker("api", BreakerConfig(cooldown=10, half_open_probes=1))
    for _ in range(5):
        registry.breaker("api", BreakerConfig(cooldown=20, half_open_probes=2))

    assert 1 == len(messages(caplog))
    text = messages(caplog)[0]
    assert logging.WARNING == caplog.records[0].levelno
    for part in ("api", "cooldown", "half_open_probes", "10", "20"):
        assert part in text
    assert "probe_lease" not in text


def test_conflict_through_the_decorator(registry, caplog):
    """Section 9: breaker(name, config) registers; a later one with other settings warns."""
    caplog.set_level(logging.WARNING, "resilience")
    breaker("api", BreakerConfig(cooldown=10))
    breaker("api", BreakerConfig(cooldown=20))(lambda: None)

    assert 1 == len(messages(caplog))
    assert 10.0 == registry.get("api").config.cooldown


def test_conflict_is_an_event_each_time(registry, events):
    """Section 9: and a counter; section 12: config conflicts always are events."""
    registry.breaker("api", BreakerConfig(cooldown=10))
    registry.breaker("api", BreakerConfig(cooldown=20))
    conflicts = [event for event in events if isinstance(event, ConfigConflict)]

    assert ["api"] == [event.name for event in conflicts]
    assert any("cooldown" in difference for difference in conflicts[0].differences)


def test_equal_config_is_no_conflict(registry, caplog, events):
    """Section 9: equal by value."""
    caplog.set_level(logging.WARNING, "resilience")
    registry.breaker("api", BreakerConfig(Consecutive(3), trip_on_status=[401]))
    registry.breaker("api", BreakerConfig(Consecutive(3), trip_on_status={401}))

    assert [] == messages(caplog)
    assert [] == events


def test_reference_is_no_conflict(registry, caplog):
    """Section 9: a reference without a config conflicts with nothing."""
    caplog.set_level(logging.WARNING, "resilience")
    registry.breaker("api", BreakerConfig(cooldown=10))
    breaker("api")(lambda: None)()
    registry.breaker("api")

    assert [] == messages(caplog)


def test_strict_raises_instead(caplog):
    """Section 9: strict=True raises instead, and names the fields."""
    registry = Registry(strict=True)
    registry.breaker("api", BreakerConfig(cooldown=10))
    registry.breaker("api", BreakerConfig(cooldown=10))
    with pytest.raises(ConfigurationError, match="cooldown"):
        registry.breaker("api", BreakerConfig(cooldown=20))
    assert 10.0 == registry.get("api").config.cooldown


def test_reference_registers_nothing(registry):
    """Section 9: a reference without a config registers nothing when decorated."""
    breaker("api")(lambda: None)
    assert "api" not in registry
    assert registry.get("api") is None


def test_reference_takes_what_was_registered_after_it(registry):
    """Section 9: it resolves at its first call."""
    fn = breaker("api")(lambda: None)
    shared = registry.breaker("api", BreakerConfig(Consecutive(1)))
    shared.force_open("drill")
    with pytest.raises(Exception, match="api"):
        fn()


def test_two_references_before_registration_share(registry, remote):
    """Section 9: both resolve to the same breaker."""
    one = breaker("api")(remote(then=ConnectionError))
    two = breaker("api")(remote(then=ConnectionError))
    for fn in (one, two, one, two, one):
        with pytest.raises(ConnectionError):
            fn()
    assert CircuitState.OPEN is registry.get("api").state


def test_registering_after_the_first_call_conflicts(registry, caplog):
    """Section 9: only if nobody has registered the name by then do the defaults apply: later it is a conflict."""
    caplog.set_level(logging.WARNING, "resilience")
    breaker("api")(lambda: None)()
    registry.breaker("api", BreakerConfig(cooldown=10))
    assert 1 == len(messages(caplog))


def test_get_of_an_unknown_name(registry):
    """Design 1: None."""
    assert registry.get("nobody") is None
    assert registry.get_bulkhead("nobody") is None
    assert registry.reset("nobody") is False


def test_iteration_and_in(registry):
    """Design 1: iteration gives breakers, `in` asks for a name."""
    one, two = registry.breaker("one", BreakerConfig()), registry.breaker("two", BreakerConfig())
    assert [one, two] == list(registry)
    assert "one" in registry
    assert "three" not in registry
    assert 5 not in registry


def test_status_all(registry):
    """Section 9: status_all() by name, without creating anything."""
    registry.breaker("one", BreakerConfig())
    assert {"one"} == set(registry.status_all())
    assert "one" == registry.status_all()["one"].name


def test_registry_reset(registry):
    """Design 1: Registry.reset(name)."""
    shared = registry.breaker("api", BreakerConfig())
    assert registry.reset("api") is False
    shared.force_open("drill")
    assert registry.reset("api") is True
    assert not shared.is_open()


def test_use_registry_holds_for_what_is_decorated_inside():
    """Design 1: a function decorated before keeps its breaker; one decorated inside has the block's."""
    outside = Registry()
    inside = Registry()
    with use_registry(outside):
        before = breaker("api", BreakerConfig(Consecutive(1)))(lambda: 1 / 0)
    with use_registry(inside):
        within = breaker("api", BreakerConfig(Consecutive(1)))(lambda: "in")
        outside.get("api").force_open("drill")
        assert "in" == within()
        with pytest.raises(Exception, match="open"):
            before()
    inside.get("api").force_open("drill")
    with pytest.raises(Exception, match="open"):
        within()


def test_use_registry_nests_and_restores():
    """Design 1: a context manager."""
    default = default_registry()
    one, two = Registry(), Registry()
    with use_registry(one):
        with use_registry(two):
            assert two.breaker("x") is breaker("x").breaker
        assert one.breaker("x") is breaker("x").breaker
    assert default_registry() is default


def test_registry_argument_beats_the_current_one(registry):
    """Design 1: registry= says where the name lives."""
    other = Registry()
    breaker("api", BreakerConfig(), registry=other)(lambda: None)()
    assert "api" in other
    assert "api" not in registry


def test_registering_from_many_threads_gives_one_breaker(registry):
    """Section 9: safe from any thread."""
    start = threading.Barrier(8)
    found = []

    def register():
        start.wait(5)
        for number in range(50):
            found.append((number, registry.breaker(f"b{number}", BreakerConfig())))  # noqa: PERF401

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert 50 == len(set(found))


@pytest.mark.parametrize("kind", ["Breaker", "Bulkhead"])
def test_every_mistake_at_the_registry_is_named(registry, kind):
    """I20: all faults at once, each with the parameter, the value given and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        getattr(registry, kind.lower())("a b", config=5)

    assert (
        "name must be a str of 1 to 256 bytes of A-Z a-z 0-9 . _ : / @ + -, got 'a b'",
        f"config must be a {kind}Config or None, got 5",
    ) == caught.value.faults


def test_every_mistake_at_a_new_registry_is_named():
    """I20: the same for its own settings."""
    with pytest.raises(ConfigurationError) as caught:
        Registry(clock="noon", strict="yes")

    assert (
        "strict must be True or False, got 'yes'",
        "clock must be a Clock (monotonic, time_ns, sleep, asleep, call_at) or None, got 'noon'",
    ) == caught.value.faults


def test_conflict_of_bulkheads_says_what_differs(registry, events):
    """Section 9: field by field, in the normal form of both settings, and only what differs."""
    registry.bulkhead("pool", BulkheadConfig(2, 5))
    registry.bulkhead("pool", BulkheadConfig(2, 7))
    registry.bulkhead("pool", BulkheadConfig(2))

    assert [
        ("pool", ("max_waiting: 5, not 7",)),
        ("pool", ("max_waiting: 5, not 20",)),
    ] == [(event.name, event.differences) for event in events]


def test_conflicts_are_counted_by_name(registry):
    """Section 9: each different conflict once."""
    for cooldown in (10, 20, 20, 30):
        registry.breaker("api", BreakerConfig(cooldown=cooldown))
    registry.breaker("other", BreakerConfig(cooldown=10))

    assert {"config_conflict:api": 2} == registry.hub.counts


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("sink",), "sink must be a callable that takes an event"),
        ((print, int), "types must be event classes of resilience.events, got [<class 'int'>]"),
    ],
)
def test_subscribing_names_a_mistake(registry, arguments, text):
    """Section 12: what can't be listened with, or for, is refused with the reason."""
    with pytest.raises(ConfigurationError) as caught:
        registry.subscribe(*arguments)

    assert text == str(caught.value)


def test_a_registry_says_why_it_is_not_pickled(registry):
    """I19: it belongs to its process."""
    with pytest.raises(TypeError, match="^a registry belongs to its process: it can't be pickled$"):
        pickle.dumps(registry)


def test_names_are_registered_in_a_forked_child(registry):
    """I19: as in any other process."""
    registry.after_fork()

    assert registry.breaker("child") is registry.get("child")


def test_bulkhead_needs_a_config_at_the_registry(registry):
    """Section 7: an unknown bulkhead without a size can't be made."""
    with pytest.raises(ConfigurationError):
        registry.bulkhead("pool")


def test_conflicts_of_different_names_each_warn(registry, caplog):
    """Section 9: one warning for each name."""
    caplog.set_level(logging.WARNING, "resilience")
    for name in ("one", "two"):
        registry.breaker(name, BreakerConfig(cooldown=10))
        registry.breaker(name, BreakerConfig(cooldown=20))
    assert 2 == len(messages(caplog))


def test_a_second_different_conflict_of_one_name(registry, caplog):
    """Section 9: a later registration with a different config logs one warning; an unlike one says its own difference, once."""
    caplog.set_level(logging.WARNING, "resilience")
    registry.breaker("api", BreakerConfig(cooldown=10))
    for _ in range(3):
        registry.breaker("api", BreakerConfig(cooldown=20))
        registry.breaker("api", BreakerConfig(cooldown=10, half_open_probes=5))
    assert len(messages(caplog)) in (1, 2)


def test_wrapper_survives_its_registry_reference(remote):
    """Section 9: a decorated function keeps working when nobody else holds the registry."""
    import gc

    with use_registry(Registry()):
        fn = breaker("api", BreakerConfig(Consecutive(1)))(remote(ConnectionError))
    gc.collect()
    with pytest.raises(ConnectionError):
        fn()
    with pytest.raises(Exception, match="open"):
        fn()


def test_breaker_of_a_reference_is_the_registrys(registry):
    """Design 1: BreakerRef.breaker."""
    ref = breaker("api", BreakerConfig())
    assert registry.get("api") is ref.breaker


def test_reference_is_immutable(registry):
    """Design 1: policies are immutable values."""
    for policy in (breaker("api"), bulkhead(max_in_flight=1)):
        with pytest.raises((AttributeError, TypeError)):
            policy.name = "other"


def test_names_are_case_sensitive(registry):
    """Section 9: names as they are."""
    assert registry.breaker("API", BreakerConfig()) is not registry.breaker("api", BreakerConfig())


def test_clear_state_of_a_registry_with_probes(registry, clock):
    """Design 1: puts breakers back to CLOSED and zero, also one with a live probe; its result is late."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1)))
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    probe = shared.try_acquire()
    registry.clear_state()
    shared.on_failure(probe, FaultKind.TRANSIENT)
    assert CircuitState.CLOSED is shared.state
    assert 0 == shared.status().failures_total


def test_a_breaker_that_travels_brings_its_settings(monkeypatch):
    """I19: where its name is new, it is registered with them."""
    monkeypatch.setattr(default_registry(), "_breakers", {})
    config = BreakerConfig(cooldown=7)
    home, travelling = default_registry().breaker("api", config).__reduce__()
    default_registry()._breakers.clear()

    assert config == home(*travelling).config
