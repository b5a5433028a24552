"""A long run under everything at once, and the sums at its end.

    python tests/soak/soak.py --seconds 60 [--seed N] [--json]

Threads and event loops (one of them uvloop's, where it is installed) call 100 named breakers in three registries
through every combination of policies. 30 % of the calls fail, 10 % hang until a limit of a few milliseconds cuts them,
10 % are cancelled (some twice), 5 % end in a BaseException. Meanwhile an operator resets, forces, disables and enables,
listeners come, fail and go, finalisers and abandoned generators report during garbage collection, permits are leaked,
and the process forks. Outages and recoveries come in turns.

Twice, in the middle and at the end, everything is drained, every breaker is brought to open and must close again, and
the books are balanced. Exit code 1, with one line for each violation, if anything does not add up.

Seeded: each thread draws from its own generator, so that a run is the same as far as threads allow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import faulthandler
import gc
import itertools
import json
import logging
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from typing import ClassVar

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    OnOpen,
    OnReject,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
    uninterruptible,
)
from resilience import events as ev
from resilience._engine import workers

try:
    import uvloop
except ImportError:
    uvloop = None

PROVIDERS, MODELS = 20, 5
COOLDOWN, LEASE, LIMIT = 0.02, 0.05, 0.005
OPEN, CLOSED = CircuitState.OPEN, CircuitState.CLOSED
SYNC_THREADS, LOOPS, TASKS = 3, 2, 25
SUBSETS = ["".join(parts) for parts in itertools.product(("", "B"), ("", "T", "P"), ("", "R"), ("", "C", "A"))][1:]
IN_CHILD = {
    0: "hung",
    1: "raised",
    2: "had slots taken by its parent",
    3: "had probes of its parent",
    4: "had probes that do not add up",
    5: "could not call",
}
GROWTH = 3_000
"""Objects that the second half of a run may leave behind more than the first: caches, tallies, bookkeeping here."""


class Vanished(BaseException):
    """What no classifier is ever asked about."""


def eager(loop, coroutine, *, eager_start=True, **options):
    """asyncio.eager_task_factory, which uvloop 0.23 gives an argument that Python 3.13 does not take."""
    return asyncio.Task(coroutine, loop=loop, eager_start=True, **options)


class Tally:
    """Counts by word; one C call per tick, so finalisers may tick in the middle of anything."""

    WORDS = (
        "calls",
        "ok",
        "failed",
        "internal",
        "base",
        "cut",
        "refused",
        "bypassed",
        "full",
        "unborn",
        "cancelled",
    )

    def __init__(self):
        self._ticks = {word: itertools.count() for word in self.WORDS}

    def tick(self, word):
        next(self._ticks[word])

    def __getitem__(self, word):
        return int(repr(self._ticks[word])[6:-1])

    def as_dict(self):
        return {word: self[word] for word in self.WORDS}


class Provider:
    """One name: its breaker, what its remote does, and what its remote has done.

    Where `exact`, each attempt ends under the eyes of the breaker: no limit, no retry, no disabling, so every sum is an
    equation. Elsewhere the sums are bounds.
    """

    def __init__(self, soak, index):
        self.soak = soak
        self.name = f"provider-{index // MODELS:02}/model-{index % MODELS}"
        self.exact = index % 5 < 2
        self.registry = soak.registries[index % len(soak.registries)]
        trip = (
            Consecutive(3 + index % 3),
            Consecutive(4, within=1.0),
            FailureRate(0.5, window=0.5, bucket=0.05, min_calls=6),
        )[index % 3]
        self.config = BreakerConfig(
            trip,
            cooldown=COOLDOWN,
            probe_lease=LEASE,
            half_open_probes=1 + index % 2,
            half_open_successes=1 + index // 2 % 2,
            shadow=index % 25 == 24,
        )
        self.breaker = self.registry.breaker(self.name, self.config)
        self.tally = Tally()
        self.events = Counter()
        pool = f"pool-{index % 7}"
        self.pool = self.registry.bulkhead(pool, BulkheadConfig(2 + index % 7, 10))
        self.pool_name = pool
        self.sites = []

    # ------------------------------------------------------------------------------------------------ the remote
    def choose(self, rng):
        """What this attempt will do."""
        mode = self.soak.mode
        if mode == "healthy":
            return "ok"
        draw = rng.random()
        if mode == "outage":
            return "failed" if draw < 0.95 else "base"
        if draw < 0.25:
            return "failed"
        if draw < 0.30:
            return "internal"
        if draw < 0.40:
            return "hang"
        return "base" if draw < 0.45 else "ok"

    def end(self, what, here):
        self.tally.tick(what)
        if what == "failed":
            raise ConnectionError
        if what == "internal":
            raise KeyError("ours")
        if what == "base":
            raise (KeyboardInterrupt if here == "thread" else Vanished)
        return "ok"

    def play(self, seconds=None):
        """The remote for a plain function."""
        what = self.choose(self.soak.rng())
        if what == "hang":
            time.sleep(2 * LIMIT if seconds is None else min(seconds, 2 * LIMIT))
            what = "ok"
        return self.end(what, "thread")

    async def aplay(self, hangs):
        """The remote for a coroutine function."""
        what = self.choose(self.soak.rng())
        try:
            await asyncio.sleep(0)
            if what == "hang":
                await asyncio.sleep(5 if hangs else 2 * LIMIT)
                what = "ok"
            return self.end(what, "loop")
        except asyncio.CancelledError:
            self.tally.tick("cut")
            raise

    # ------------------------------------------------------------------------------------------------ the call sites
    def decorate(self, rng):
        """The ways to call this provider: four plain ones and four async ones."""
        letters = ["C", "BC"] if self.exact else [letter for letter in SUBSETS if set(letter) & set("CA")]
        for number in range(4):
            self.sites.append(self.plain_site(rng.choice(letters), number))
            self.sites.append(self.async_site(rng.choice(letters), number))
        if not self.exact:
            # Without a breaker at all.
            self.sites.append(self.async_site(rng.choice(["B", "T", "BT", "PR", "BTR"]), 0))
            self.sites.append(self.plain_site(rng.choice(["B", "R", "BR"]), 1))

    def policies(self, letters, number, *, pass_as=None):
        registry = self.registry
        bypass = number == 3 and not self.exact
        made = {
            "B": lambda: bulkhead(
                self.pool_name,
                wait=0.002 if number % 2 else 0.0,
                on_reject=OnReject.BYPASS if bypass else OnReject.FAIL,
                fallback="skipped" if bypass else None,
                registry=registry,
            ),
            "T": lambda: timeout(LIMIT, pass_as=pass_as),
            "P": lambda: timeout(3 * LIMIT, per_attempt=LIMIT, pass_as=pass_as),
            "R": lambda: retry(3, wait=0.001 * (number % 2), idempotent=True),
            "C": lambda: breaker(
                self.name,
                registry=registry,
                on_open=OnOpen.BYPASS if bypass else OnOpen.FAIL,
                fallback="skipped" if bypass else None,
            ),
            "A": lambda: breaker(self.name, registry=registry, account="call"),
        }
        return compose(*(made[letter]() for letter in letters))

    def plain_site(self, letters, number):
        if number == 0:
            return "plain", self.guarded
        if not set(letters) & set("TP"):
            return "plain", self.policies(letters, number)(lambda: self.play())
        if number % 2:
            # Left to a worker when its time is up; it goes on to its end behind everybody's back.
            return "plain", self.policies(letters, number)(interruptible(max_workers=4)(lambda: self.play()))
        return "plain", self.policies(letters, number, pass_as="seconds")(lambda seconds=None: self.play(seconds))

    def async_site(self, letters, number):
        limited = bool(set(letters) & set("TP"))

        async def fn():
            return await self.aplay(limited)

        if number == 0 and "C" in letters:
            return "async", self.aguarded
        if number == 1 and not limited:
            # A plain function whose coroutine is awaited. Without a wait in line, which would block the event loop.
            return "async", self.policies(letters, 0)(lambda: fn())
        if number == 2 and not limited and not self.exact:
            return "async", self.policies(letters, number)(uninterruptible(fn))
        return "async", self.policies(letters, number)(fn)

    def guarded(self):
        with self.breaker.guard():
            return self.play()

    async def aguarded(self):
        async with self.breaker.guard():
            return await self.aplay(False)

    # ------------------------------------------------------------------------------------------------ one call
    def ended(self, error, result):
        """Count how a call ended, as its caller sees it."""
        tally = self.tally
        if isinstance(error, CircuitOpenError):
            tally.tick("refused")
        elif isinstance(error, BulkheadFullError):
            tally.tick("full")
        elif error is None and result == "skipped":
            tally.tick("bypassed")
        elif error is not None and not isinstance(
            error, (ConnectionError, KeyError, TimeoutExceeded, Vanished, KeyboardInterrupt, asyncio.CancelledError)
        ):
            self.soak.violate(f"{self.name}: a call ended in {type(error).__name__}: {error}")

    def call(self, fn):
        self.tally.tick("calls")
        error = result = None
        try:
            result = fn()
        except BaseException as exc:
            error = exc
        try:
            self.ended(error, result)
        finally:
            del error

    async def acall(self, fn, rng):
        """One call in a task of its own, which may be cancelled, once or twice."""
        self.tally.tick("calls")
        loop = asyncio.get_running_loop()

        async def run():
            return await fn()

        task = loop.create_task(run())
        accepted = False
        if rng.random() < 0.10:
            for _ in range(1 + (rng.random() < 0.2)):
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                else:
                    await asyncio.sleep(rng.random() * LIMIT)
                accepted = task.cancel() or accepted
        await asyncio.wait([task])
        if task.cancelled() != accepted:
            how = "swallowed" if accepted else "invented"
            self.soak.violate(f"{self.name}: a cancel of {getattr(fn, '__qualname__', fn)} was {how}: {task}")
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.tally.tick("cancelled")
        else:
            self.ended(error, None if error is not None else task.result())


class Finaliser:
    """Reports into a breaker whenever it is collected."""

    def __init__(self, provider):
        self.provider = provider
        self.ring = self

    def __del__(self):
        # Not as a part of the call that it happens to interrupt, whose probe it would share.
        contextvars.Context().run(self.report)

    def report(self):
        tally = self.provider.tally
        tally.tick("calls")
        try:
            with self.provider.breaker.guard():
                tally.tick("ok")
        except CircuitOpenError:
            tally.tick("refused")


def abandoned(provider):
    """A generator that holds a permit until it is collected."""
    with provider.breaker.guard():
        yield


class Closer:
    """Closes a generator when it is collected itself, in a context of its own.

    Python 3.11 collects garbage in the middle of `ContextVar.set`, and crashes where a finaliser sets a variable of the
    same context there, as leaving a probe's block does. Later versions collect between two bytecodes.
    """

    waiting: ClassVar = {}

    def __init__(self, generator):
        self.waiting[id(self)] = generator
        self.ring = self

    def __del__(self):
        contextvars.Context().run(self.waiting.pop(id(self)).close)


class Soak:
    """The whole run."""

    def __init__(self, seconds, seed, sabotage=False):
        self.seconds = seconds
        self.seed = seed
        self.sabotage = sabotage
        self.violations = []
        self.mode = "storm"
        self.stop = threading.Event()
        self._local = threading.local()
        self._names = itertools.count()
        self.registries = [Registry() for _ in range(3)]
        self.sequences = [0, 0, 0]
        self.unsubscribes = []
        self.providers = []
        self.threads = []
        self.forks = self.operations = self.left_tasks = self.generations = 0
        self.by_type = []

    def violate(self, text):
        if len(self.violations) < 100:
            self.violations.append(text)

    def rng(self):
        """The generator of this thread."""
        rng = getattr(self._local, "rng", None)
        if rng is None:
            # A worker of the library: as reproducible as the order in which they begin.
            rng = self._local.rng = random.Random(f"{self.seed} worker {next(self._names)}")
        return rng

    # ------------------------------------------------------------------------------------------------ setting up
    def set_up(self):
        rng = random.Random(f"{self.seed} sites")
        self.by_name = {}
        for index in range(PROVIDERS * MODELS):
            provider = Provider(self, index)
            provider.decorate(rng)
            self.providers.append(provider)
            self.by_name[provider.name] = provider
        for number, registry in enumerate(self.registries):
            registry.subscribe(self.numbered(number))
            registry.subscribe(self.failing(random.Random(f"{self.seed} listener {number}")))

    def numbered(self, number):
        sequences, by_name = self.sequences, self.by_name
        counted = {ev.ProbeStarted: "started", ev.ProbeSucceeded: "succeeded", ev.ProbeFailed: "failed"}

        def listener(event):
            if event.sequence != sequences[number] + 1:
                self.violate(f"registry {number}: event {event.sequence} after {sequences[number]}")
            sequences[number] = event.sequence
            provider = by_name.get(event.name)
            if provider is None:
                return
            kind = type(event)
            if kind is ev.StateChanged and event.after is OPEN:
                provider.events["trips" if event.cause in ("tripped", "probe_failed") else "forced"] += 1
            elif kind is ev.LateResult and not event.accepted:
                provider.events[f"late {event.verdict.value}"] += 1
            elif kind is ev.ProbeReleased:
                provider.events["released"] += 1
            elif kind in counted:
                provider.events[counted[kind]] += 1

        return listener

    def failing(self, rng):
        def failing_listener(event):
            if rng.random() < 0.05:
                raise RuntimeError("a listener that fails")

        return failing_listener

    # ------------------------------------------------------------------------------------------------ the load
    def start(self):
        self.stop.clear()
        self.generations += 1
        works = [self.call_on] * SYNC_THREADS + [self.loop_on] * LOOPS + [self.operate]
        self.threads = []
        for number, work in enumerate(works):
            thread = threading.Thread(target=self.guard_thread, args=(work, number), name=f"soak {number}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def guard_thread(self, work, number):
        self._local.rng = random.Random(f"{self.seed} thread {number} {self.generations}")
        try:
            work(number)
        except BaseException as exc:
            self.violate(f"thread {number} died of {type(exc).__name__}: {exc}")

    def call_on(self, number):
        rng = self.rng()
        while not self.stop.is_set():
            provider = rng.choice(self.providers)
            fn = rng.choice([fn for kind, fn in provider.sites if kind == "plain"])
            provider.call(fn)
            if rng.random() < 0.02:
                Finaliser(provider)
            if not provider.exact:
                # While such a permit is a probe, what this thread calls next is part of that probe and counts nothing.
                if rng.random() < 0.02:
                    self.leave_a_generator(provider)
                if rng.random() < 0.01:
                    self.leak_a_permit(provider)

    def leave_a_generator(self, provider):
        ring = [abandoned(provider)]
        provider.tally.tick("calls")
        try:
            next(ring[0])
        except CircuitOpenError:
            provider.tally.tick("refused")
        else:
            provider.tally.tick("unborn")
        if sys.version_info < (3, 12):
            Closer(ring.pop())
        ring.append(ring)

    def leak_a_permit(self, provider):
        """A permit that nobody reports on: its lease has to bring the slot back."""
        with contextlib.suppress(CircuitOpenError):
            provider.breaker.try_acquire()

    def loop_on(self, number):
        factory = uvloop.new_event_loop if uvloop is not None and number % 2 else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            complaints = []
            runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
            runner.run(self.callers())
            gc.collect()
            for complaint in complaints:
                self.violate(f"event loop: {complaint}")

    async def callers(self):
        rng = self.rng()
        if hasattr(asyncio, "eager_task_factory") and rng.random() < 0.5:
            asyncio.get_running_loop().set_task_factory(eager)
        await asyncio.gather(*(self.call_in_loop(rng) for _ in range(TASKS)))
        for _ in range(5):
            await asyncio.sleep(0)
        left = len(asyncio.all_tasks()) - 1
        if self.sabotage:
            left += 1
        if left:
            self.violate(f"{left} tasks left in an event loop")

    async def call_in_loop(self, rng):
        while not self.stop.is_set():
            provider = rng.choice(self.providers)
            fn = rng.choice([fn for kind, fn in provider.sites if kind == "async"])
            await provider.acall(fn, rng)
            await asyncio.sleep(0)

    def operate(self, number):
        rng = self.rng()
        while not self.stop.is_set():
            provider = rng.choice(self.providers)
            circuit = provider.breaker
            act = rng.choice(("reset", "force", "force for long", "disable", "enable", "collect", "listen", "read"))
            if act == "reset":
                circuit.reset(actor="soak", reason="drill")
            elif act == "force":
                circuit.force_open("drill", seconds=COOLDOWN, actor="soak")
            elif act == "force for long" and rng.random() < 0.2:
                circuit.force_open("drill", actor="soak")
            elif act == "disable" and not provider.exact:
                circuit.disable(actor="soak")
            elif act == "enable":
                circuit.enable(actor="soak")
            elif act == "collect":
                gc.collect()
            elif act == "listen":
                self.listen_anew(provider, rng)
            else:
                self.read(provider)
            self.operations += 1
            # Whatever was forced or disabled comes back after a while.
            if self.operations % 10 == 0:
                for each in self.providers:
                    if each.breaker.status().mode.value != "normal":
                        each.breaker.enable()
            time.sleep(0.002)

    def listen_anew(self, provider, rng):
        self.unsubscribes.append(
            provider.registry.subscribe(
                lambda event: None, *rng.choice(((), (ev.Rejected,), (ev.TimedOut, ev.Bypassed)))
            )
        )
        if len(self.unsubscribes) > 5:
            self.unsubscribes.pop(0)()

    def read(self, provider):
        """What is read in the middle of all is consistent too."""
        status = provider.breaker.status()
        ended = status.probes_succeeded + status.probes_failed + status.probes_released
        if not 0 <= status.probes_started - ended <= provider.config.half_open_probes:
            self.violate(f"{provider.name}: {status.probes_started} probes, {ended} ended, in one status")
        if not 0 <= provider.pool.in_flight <= provider.pool.max_in_flight:
            self.violate(f"{provider.pool_name}: {provider.pool.in_flight} in flight")

    # ------------------------------------------------------------------------------------------------ forks
    def fork(self):
        self.forks += 1
        child = os.fork()
        if child == 0:
            # Killed if it hangs: a lock that nobody here holds is still held.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            code = 1
            try:
                code = self.in_child()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            self.violate(f"a forked child {IN_CHILD.get(status >> 8, 'failed')} (status {status})")

    def in_child(self):
        """0, or which of `IN_CHILD` is true."""
        self.stop.set()
        for provider in self.providers:
            if (provider.pool.in_flight, provider.pool.waiting) != (0, 0):
                return 2
            if provider.breaker.circuit._probes:
                return 3
            if not self.is_balanced(provider.breaker.status()):
                return 4
        self.mode = "healthy"
        for provider in self.providers[:: len(self.providers) // 10]:
            before = provider.tally["ok"] + provider.tally["refused"]
            provider.call(provider.guarded)
            # A finaliser of the parent's may have reported as well.
            if provider.tally["ok"] + provider.tally["refused"] <= before:
                return 5
        asyncio.run(self.one_in_child(self.providers[0]))
        return 0

    async def one_in_child(self, provider):
        with contextlib.suppress(CircuitOpenError, BulkheadFullError):
            await next(fn for kind, fn in provider.sites if kind == "async")()

    @staticmethod
    def is_balanced(status):
        return status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released

    # ------------------------------------------------------------------------------------------------ draining
    def drain(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(20)
            if thread.is_alive():
                self.violate(f"{thread.name} is stuck")
        self.threads = []
        for _ in range(3):
            gc.collect()
        self.await_true(lambda: not self.library_threads(), "workers of the library are left", 5)
        for provider in self.providers:
            provider.breaker.enable()

    def library_threads(self):
        return [thread for thread in threading.enumerate() if thread.name.startswith("resilience")]

    def await_true(self, condition, text, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.violate(text)
                return
            time.sleep(0.005)

    def open_all(self):
        """An outage that nobody escapes: every breaker opens, by failures alone."""
        self.mode = "dead"
        for provider in self.providers:
            shared = provider.breaker
            end = time.monotonic() + 2
            while shared.state is not OPEN and time.monotonic() < end:
                provider.tally.tick("calls")
                try:
                    with shared.guard():
                        provider.tally.tick("failed")
                        raise ConnectionError
                except ConnectionError:
                    pass
                except CircuitOpenError:
                    provider.tally.tick("refused")
            if shared.state is not OPEN:
                self.violate(f"{provider.name} does not open while everything fails")

    def close_all(self):
        """I7: closed again after cooldown and lease, within `half_open_successes` calls."""
        self.mode = "healthy"
        time.sleep(COOLDOWN + LEASE)
        for provider in self.providers:
            for _ in range(provider.config.half_open_successes):
                provider.tally.tick("calls")
                try:
                    with provider.breaker.guard():
                        provider.tally.tick("ok")
                except CircuitOpenError:
                    provider.tally.tick("refused")
            if provider.breaker.state is not CLOSED:
                self.violate(f"{provider.name} is {provider.breaker.state.value} although its remote is well")

    # ------------------------------------------------------------------------------------------------ the books
    def balance(self):
        for registry in self.registries:
            # Whatever is left in the outbox goes out with the next act.
            registry.hub.deliver()
            if registry.hub.outbox:
                self.violate("events are left in an outbox")
        pools = {(provider.pool_name, id(provider.registry)): provider.pool for provider in self.providers}
        for (name, _), pool in pools.items():
            if (pool.in_flight, pool.waiting) != (0, 0):
                self.violate(f"{name}: {pool.in_flight} in flight, {pool.waiting} waiting, and nobody is there")
        for provider in self.providers:
            self.balance_probes(provider)
            (self.balance_exactly if provider.exact else self.balance_within_bounds)(provider)

    def balance_probes(self, provider):
        status, events, circuit = provider.breaker.status(), provider.events, provider.breaker.circuit
        if not self.is_balanced(status) or circuit._probes:
            self.violate(f"{provider.name}: probes do not add up: {status}")
        told = (events["started"], events["succeeded"], events["failed"], events["released"])
        kept = (status.probes_started, status.probes_succeeded, status.probes_failed, status.probes_released)
        if told != kept:
            self.violate(f"{provider.name}: probes told {told}, kept {kept}")

    def balance_exactly(self, provider):
        status, tally, events = provider.breaker.status(), provider.tally, provider.events
        found = {
            "successes": (status.successes_total + events["late success"], tally["ok"]),
            "failures": (status.failures_total + events["late failure"], tally["failed"]),
            "refusals": (status.rejected_total, tally["refused"]),
        }
        for what, (kept, made) in found.items():
            if kept != made:
                self.violate(f"{provider.name}: {kept} {what} kept, {made} made ({dict(events)}, {status})")

    def balance_within_bounds(self, provider):
        status, tally, events = provider.breaker.status(), provider.tally, provider.events
        successes = status.successes_total + events["late success"]
        if successes > tally["ok"]:
            self.violate(f"{provider.name}: {successes} successes kept, {tally['ok']} made")
        if status.rejected_total + status.bypassed_total < tally["refused"]:
            self.violate(f"{provider.name}: {tally['refused']} callers refused, {status.rejected_total} refusals kept")

    def measure(self):
        """Objects by type, when all is quiet."""
        for _ in range(3):
            gc.collect()
        kinds = Counter(type(thing) for thing in gc.get_objects())
        exceptions = sum(count for kind, count in kinds.items() if issubclass(kind, BaseException))
        ours = sum(count for kind, count in kinds.items() if str(kind.__module__).startswith("resilience"))
        frames = sum(count for kind, count in kinds.items() if kind.__name__ in ("frame", "traceback", "coroutine"))
        return {"objects": sum(kinds.values()), "exceptions": exceptions, "ours": ours, "frames": frames}

    def compare(self, middle, end):
        bounds = {"objects": GROWTH, "exceptions": 20, "ours": 500, "frames": 20}
        for what, bound in bounds.items():
            if end[what] > middle[what] + bound:
                self.violate(f"{what} grew from {middle[what]} to {end[what]}, {bound} more are allowed")

    # ------------------------------------------------------------------------------------------------ all of it
    def half(self, seconds):
        end = time.monotonic() + seconds
        rng = random.Random(f"{self.seed} phases {self.generations}")
        self.mode = "storm"
        self.start()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2 + rng.random() * 0.4))
            self.mode = rng.choice(("storm", "storm", "outage", "healthy"))
            if hasattr(os, "fork") and rng.random() < 0.7:
                self.fork()
        self.drain()
        self.open_all()
        self.close_all()
        self.sabotage_now()
        self.balance()

    def sabotage_now(self):
        """One thing wrong of each kind, to prove that each would be noticed."""
        if not self.sabotage or self.generations == 1:
            return
        provider = self.providers[0]
        provider.pool.take()
        provider.tally.tick("ok")
        provider.breaker.circuit.totals.probes_started += 1
        provider.registry.hub._sequence += 1
        provider.breaker.force_open("drill")
        self.kept = [ConnectionError() for _ in range(1000)]

    def run(self):
        began = time.monotonic()
        idle, workers.IDLE_SECONDS = workers.IDLE_SECONDS, 0.1
        thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
        gc.set_threshold(100, 5, 5)
        sys.setswitchinterval(5e-4)
        silent = logging.getLogger("resilience")
        before = silent.propagate, silent.level
        silent.propagate = False
        silent.addHandler(logging.NullHandler())
        try:
            self.set_up()
            self.half(self.seconds / 2)
            middle = self.measure()
            self.half(self.seconds / 2)
            self.compare(middle, self.measure())
        finally:
            workers.IDLE_SECONDS = idle
            gc.set_threshold(*thresholds)
            sys.setswitchinterval(interval)
            silent.propagate, silent.level = before
        return self.summary(time.monotonic() - began, middle)

    def summary(self, seconds, middle):
        totals = Counter()
        events = Counter()
        for provider in self.providers:
            totals.update(provider.tally.as_dict())
            events.update(provider.events)
        return {
            "python": sys.version.split()[0],
            "seed": self.seed,
            "seconds": round(seconds, 1),
            "calls": totals["calls"],
            "calls per second": round(totals["calls"] / seconds),
            **{word: totals[word] for word in Tally.WORDS[1:]},
            "trips": events["trips"],
            "forced": events["forced"],
            "probes": events["started"],
            "probes released": events["released"],
            "late": sum(count for word, count in events.items() if word.startswith("late")),
            "events": sum(self.sequences),
            "forks": self.forks,
            "operations": self.operations,
            "objects": middle["objects"],
            "max RSS MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "violations": self.violations,
        }


def main(arguments=None):
    parser = argparse.ArgumentParser(description="A long run under everything at once, and the sums at its end.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")
    parser.add_argument("--sabotage", action="store_true", help="do one thing wrong of each kind: all must be found")
    given = parser.parse_args(arguments)
    faulthandler.enable()
    # What Python 3.12 says of forks beside threads is what this is about.
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    summary = Soak(given.seconds, given.seed, given.sabotage).run()
    if given.json:
        print(json.dumps(summary))
    else:
        for word, figure in summary.items():
            if word != "violations":
                print(f"{word:>18}: {figure}")
    for violation in summary["violations"]:
        print(f"VIOLATION {violation}", file=sys.stderr)
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
