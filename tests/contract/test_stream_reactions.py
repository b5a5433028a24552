"""Contract sections 3, 4 and 8: fallbacks, conditions, classifiers and `account=` around a stream."""

from __future__ import annotations

import pytest
from streaming import END

from resilience import (
    BulkheadConfig,
    FaultKind,
    OnOpen,
    OnReject,
    breaker,
    bulkhead,
    compose,
    retry,
)


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2, cooldown=30))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


def numbers(stop=3):
    yield from range(stop)


def breaking(error, after=1):
    """A stream that breaks off with an error after some items."""

    def stream():
        yield from range(after)
        raise error

    return stream


def protected(env, body, **options):
    return bulkhead("pool")(breaker("api", **options)(env.stream(body)))


def test_unless_neither_asks_nor_feeds(env, pool, api):
    """Section 4: by the call's arguments, asked at the first item."""

    def body(own=False):
        yield 1
        raise ConnectionError("down")

    asked = []

    def unless(own=False):
        asked.append(own)
        return own

    stream = env.open(protected(env, body, unless=unless), own=True)
    assert [] == asked
    api.force_open("drill")
    assert 1 == stream.next()
    with pytest.raises(ConnectionError):
        stream.next()

    assert [True] == asked
    assert 0 == api.status().failures_total
    assert 0 == pool.in_flight


FALLBACKS = {
    "none": (None, []),
    "value": ("one", ["one"]),
    "list": ([1, 2], [1, 2]),
    "tuple": ((1, 2), [1, 2]),
    "function": (lambda stop=3: ["of", stop], ["of", 3]),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_bypass_gives_the_fallbacks_items(env, pool, api, name):
    """Section 4: None: no item; a list or a tuple: its items; anything else: one item."""
    fallback, items = FALLBACKS[name]
    api.force_open("drill")
    fn = breaker("api", on_open=OnOpen.BYPASS, fallback=fallback)(env.stream(numbers))

    assert items == env.open(fn).rest()
    assert 1 == api.status().bypassed_total


@pytest.mark.parametrize("name", FALLBACKS)
def test_a_full_bulkheads_bypass_alike(env, pool, name):
    """Section 7: the same reaction to a full bulkhead."""
    fallback, items = FALLBACKS[name]
    holder = env.open(bulkhead("pool")(env.stream(numbers)))
    holder.next()
    fn = bulkhead("pool", on_reject=OnReject.BYPASS, fallback=fallback)(env.stream(numbers))

    assert items == env.open(fn).rest()
    assert 1 == pool.in_flight
    holder.close()


def test_a_fallback_that_is_a_stream(env, pool, api):
    """Section 4: an iterator or an async iterator gives its items."""
    api.force_open("drill")
    fn = breaker("api", on_open=OnOpen.BYPASS, fallback=env.stream(lambda: iter(numbers(2))))
    other = env.stream(numbers)
    fn = breaker("api", on_open=OnOpen.BYPASS, fallback=lambda: other(2))(env.stream(numbers))

    assert [0, 1] == env.open(fn).rest()


def test_nothing_is_sent_to_a_fallback(env, pool, api):
    """It gives its items, whatever is sent; what is thrown in leaves, and ends it."""
    api.force_open("drill")
    fn = breaker("api", on_open=OnOpen.BYPASS, fallback=[1, 2, 3])(env.stream(numbers))
    stream = env.open(fn)
    error = KeyError("thrown in")

    assert [1, 2] == [stream.next(), stream.send("a value")]
    with pytest.raises(KeyError) as caught:
        stream.throw(error)
    assert error is caught.value
    assert END == stream.next()
    stream = env.open(fn)
    stream.next()
    stream.close()
    assert END == stream.next()


def test_a_bypassed_stream_takes_nothing(env, pool, api):
    """Section 4: neither slot nor verdict, also in the middle of the fallback's items."""
    api.force_open("drill")
    stream = env.open(bulkhead("pool")(breaker("api", on_open=OnOpen.BYPASS, fallback=[1, 2])(env.stream(numbers))))
    stream.next()

    assert 0 == pool.in_flight
    assert [2] == stream.rest()
    assert (0, 0) == (api.status().successes_total, api.status().failures_total)


def test_one_verdict_for_a_whole_stream(env, api):
    """Section 3: account="call": an exhausted retry counts once."""
    fn = compose(retry(3, wait=0, idempotent=True), breaker("api", account="call"))(
        env.stream(breaking(ConnectionError("down"), 0))
    )
    with pytest.raises(ConnectionError):
        env.open(fn).next()

    assert (0, 1) == counted(api)


def test_one_verdict_for_a_retried_stream_that_succeeds(env, api):
    """Section 3: a success at the end of it, whatever the attempts before."""
    script = [ConnectionError("down"), None]

    def body():
        if (error := script.pop(0)) is not None:
            raise error
        yield 1

    fn = compose(retry(3, wait=0, idempotent=True), breaker("api", account="call"))(env.stream(body))
    stream = env.open(fn)

    assert [1, END] == [stream.next(), stream.next()]
    assert (1, 0) == counted(api)


def test_one_verdict_for_a_stream_that_is_closed_early(env, api):
    """I4: with account="call" too."""
    fn = compose(retry(3, wait=0, idempotent=True), breaker("api", account="call"))(env.stream(numbers))
    stream = env.open(fn)
    stream.next()
    stream.close()

    assert (0, 0) == counted(api)


def test_own_classifier(env, api):
    """Section 2: `classify=` of the call site is asked about what leaves a stream."""
    fn = breaker("api", classify=lambda error: FaultKind.TRANSIENT)(env.stream(breaking(KeyError("ours"))))
    with pytest.raises(KeyError):
        env.open(fn).rest()

    assert (0, 1) == counted(api)
