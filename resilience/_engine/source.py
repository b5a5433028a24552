"""The source of straight paths: what a wrapper of a given shape does, line by line.

Free text (names, docstrings) never enters the source. No local holds an exception at
the moment one is raised, or the exception, its traceback and the frame would keep the
arguments alive in a ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from resilience._engine.signature import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._engine.signature import Signature


class Shape(NamedTuple):
    """What a straight path is made of."""

    is_async: bool
    breaker: bool = False
    windowed: bool = False
    timed: bool = False
    """The breaker looks at how long calls take."""
    bulkhead: bool = False
    budget: bool = False
    retry: bool = False
    counted: bool = False
    """Calls are counted by slice of time, for a retry budget."""
    stateful: bool = False
    """The retry asks a strategy, which may want to know when the call began."""
    fail_fast: bool = False
    """An open circuit raises at this call site; otherwise the plan decides."""
    items: bool = False
    """The function is a generator function, and so is its wrapper."""
    first_item: bool = False
    """The first item has a limit of its own."""
    keyed: bool = False
    """There is a breaker for each key."""
    keys: tuple[str, ...] = ()
    """The parameters that are the key, where it is looked up right here."""
    roomed: bool = False
    """There is a bulkhead for each key."""
    rooms: tuple[str, ...] = ()
    """The parameters that are its key, where it is looked up right here."""

    @property
    def on_worker(self) -> bool:
        """A plain function is given up on by leaving it to a worker."""
        return self.budget and not self.is_async

    def asks(self, way: str, arguments: str = "") -> str:
        """A call of one of the cold ways that concern the breaker; where there are many, of or with the one that is meant."""
        if not self.keyed:
            return f"@cold.{way}({arguments})"
        own = _OWN_WAYS.get(way)
        return f"@breaker.{own}({arguments})" if own else f"@cold.{way}({arguments}, @breaker)"


def source_of(shape: Shape, sig: Signature) -> str:
    """The source of a factory whose parameters become the wrapper's closure.

    In the templates `@` stands for our prefix, so that no name of ours meets a parameter's.
    """
    assert not (shape.on_worker and shape.bulkhead), "a function that is left behind would have to keep its slot"
    return wrapper_source(shape, sig, _call_body)


def wrapper_source(shape: Shape, sig: Signature, add_body: Callable[[Lines, Shape, Signature], None]) -> str:
    """The source of a factory around a wrapper with such a body."""
    lines = Lines()
    lines.add(f"def make({', '.join('@' + name for name in (*HOT, 'cold'))}):")
    lines.deeper()
    lines.add(f"{'async def' if shape.is_async else 'def'} wrapper({sig.parameters}):")
    lines.deeper()
    add_body(lines, shape, sig)
    lines.shallower()
    lines.add("return wrapper")
    return lines.text()


def _call_body(lines: Lines, shape: Shape, sig: Signature) -> None:
    wait = "await " if shape.is_async else ""
    slow = f"return {wait}@cold.slow({sig.passed})"
    if shape.keyed:
        _look_up(lines, "breaker", "members", "find", shape.keys, sig)
        lines.add("@circuit = @breaker.circuit")
    add_door(lines, shape, slow)
    _enter(lines, shape, sig, slow)
    framed = shape.bulkhead or shape.budget
    if framed:
        lines.add("try:")
        lines.deeper()
    _body(lines, shape, sig, wait)
    if framed:
        lines.shallower()
        _leave(lines, shape)


def _look_up(lines: Lines, what: str, table: str, find: str, names: tuple[str, ...], sig: Signature) -> None:
    """Find what belongs to the key of this call; whatever is not in the table is found by who knows all about keys."""
    if not names:
        lines.add(f"@{what} = @cold.{find}_of({sig.positional}, {sig.keywords})")
        return
    key = f"({', '.join(names)}, )"
    # A part may not let itself be hashed or compared. The handler is left before anybody is asked, as below.
    lines.add(f"try: @{what} = @{table}[{key}]")
    lines.add(f"except @Exception: @{what} = None")
    lines.add(f"if @{what} is None: @{what} = @cold.{find}({key})")


def add_door(lines: Lines, shape: Shape, slow: str) -> None:
    """One read tells both that the circuit is closed and in which episode."""
    if not shape.breaker:
        lines.add("@episode = 0")
        return
    door = "closed_timed" if shape.timed else "closed_windowed" if shape.windowed else "closed"
    lines.add(f"@episode = @circuit.{door}")
    lines.add("if not @episode:")
    if shape.fail_fast:
        lines.add(f"    @wait = {shape.asks('door')}")
        lines.add(f"    if @wait is not None: raise {shape.asks('refuse', '@wait')}")
    lines.add("    " + slow)


def _enter(lines: Lines, shape: Shape, sig: Signature, slow: str) -> None:
    """Slot and timer; whatever is not at hand is the plan's business."""
    if shape.on_worker:
        lines.add("if not @pool.real: " + slow)
    elif shape.budget:
        lines.add("@bucket = @buckets.last()")
        lines.add("if @bucket is None or @bucket.loop._thread_id != @get_ident(): @bucket = @buckets.here()")
        lines.add("@task = None if @bucket is None else @task_of(@bucket.loop)")
        lines.add("if @task is None or @task in @bucket.entries: " + slow)
    if shape.budget:
        lines.add("@started = @time.monotonic()")
        lines.add("@outer = @outer_deadline()")
        lines.add("if @outer is not None and @past(@outer, @started): " + slow)
    if shape.roomed:
        _look_up(lines, "room", "rooms", "find_room", shape.rooms, sig)
        lines.add("@queue = @room.slots.queue")
        lines.add("@take = @room.slots.free.pop")
        lines.add("@give = @room.slots.free.append")
    if shape.bulkhead:
        # Somebody in line must not be overtaken. The handler is left before the plan begins, or
        # everything in there would be raised "during the handling of" this IndexError.
        lines.add("if @queue: " + slow)
        lines.add("try: @slot = @take()")
        lines.add("except @IndexError: @slot = None")
        lines.add("if @slot is None: " + slow)
    if shape.roomed:
        # It makes room for another key: who has got a slot of it gives it back, and looks again.
        lines.add("if @room.leaving:")
        lines.add("    @room.give(@slot)")
        lines.add("    " + slow)
    if shape.on_worker:
        lines.add("try: @worker = @pool.idle.pop()")
        lines.add("except @IndexError: @worker = None")
        lines.add("if @worker is None: " + slow)
    if shape.budget:
        lines.add("@deadline = @new_deadline()")
        lines.add("@deadline.started = @started")
        lines.add("@deadline.left = False")
        lines.add("if @outer is not None: @deadline.outer = @outer")
        lines.add("@set_deadline(@deadline)")
    if shape.budget and shape.is_async:
        lines.add("if @task.cancelling(): @note(@deadline, @task)")
        lines.add("@bucket.entries[@task] = @deadline")
        lines.add("if not @bucket.armed: @bucket.arm(@deadline)")
    elif shape.breaker and shape.timed:
        if not shape.budget:
            lines.add("@started = @time.monotonic()")
    elif shape.is_async and shape.breaker:
        lines.add("@started = None if @outer_deadline() is None else @time.monotonic()")


def _body(lines: Lines, shape: Shape, sig: Signature, wait: str) -> None:
    """Call, and what follows from how it ended."""
    began = "0.0"
    add_count(lines, shape)
    if shape.stateful:
        began = "@began"
        lines.add("@began = @cold.now()")
    lines.add("try:")
    if shape.on_worker:
        lines.add(f"    @result = @run_on(@worker, @deadline, @fn, {sig.positional}, {sig.keywords})")
    else:
        lines.add(f"    @result = {wait}@fn({sig.passed})")
    lines.add("except @Exception as @error:")
    # Settled in place where nothing outside has to be known: a bare raise adds no frame.
    lines.add(f"    @fault = {shape.asks('settled', '@episode, @error')}")
    if not shape.retry:
        lines.add("    if @fault is not None: raise")
    lines.add("    @failed = @error")
    if shape.is_async and shape.breaker:
        lines.add("except @CancelledError as @error:")
        lines.add("    " + shape.asks("interrupted", "@episode, @error, @started"))
        lines.add("    raise")
    lines.add("else:")
    lines.deeper()
    if shape.on_worker:
        lines.add("if @result is @expired:")
        gave_up = shape.asks("gave_up", f"@episode, @deadline, {sig.positional}, {sig.keywords}")
        lines.add("    return " + gave_up)
    if not shape.is_async:
        lines.add("if @type(@result) not in @plain and @awaitable[@type(@result)]:")
        lines.add(f"    return @cold.adopt(@result, {sig.positional}, {sig.keywords})")
    if shape.breaker:
        add_success(lines, shape)
    lines.add("return @result")
    lines.shallower()
    lines.add("try:")
    recovered = shape.asks("recover", f"@episode, @failed, @fault, {sig.positional}, {sig.keywords}, {began}")
    lines.add(f"    return (await {recovered}).unwrap()" if shape.is_async else f"    return {recovered}")
    lines.add("finally:")
    lines.add("    del @failed")


def add_count(lines: Lines, shape: Shape) -> None:
    """A call whose first attempt begins now, counted for a retry budget."""
    if shape.counted:
        now = "@started" if shape.budget else "@time.monotonic()"
        lines.add("@slice = @calls.current")
        lines.add(f"if {now} >= @slice.edge: @slice = @cold.next_slice()")
        lines.add("@next(@slice.ticks)")


def add_success(lines: Lines, shape: Shape) -> None:
    """Count a success: a tick where it changes nothing else."""
    if shape.keyed:
        # It may have woken up meanwhile, and have one of its own.
        lines.add("@circuit = @breaker.circuit")
    if shape.timed:
        lines.add("@now = @time.monotonic()")
        unclean = (
            "@circuit.clean_windowed != @episode or @now >= @circuit.edge or @now - @started >= @circuit.slow_from"
        )
        lines.add(f"if {unclean}: {shape.asks('succeeded', '@episode, @now - @started')}")
    elif shape.windowed:
        unclean = "@circuit.clean_windowed != @episode or @time.monotonic() >= @circuit.edge"
        lines.add(f"if {unclean}: {shape.asks('succeeded', '@episode')}")
    else:
        lines.add(f"if @circuit.streak.strikes.clean != @episode: {shape.asks('succeeded', '@episode')}")
    lines.add("else: @next(@breaker.successes)" if shape.keyed else "else: @next(@counter)")


def _leave(lines: Lines, shape: Shape) -> None:
    """The way out of slot and timer."""
    if shape.budget and shape.is_async:
        lines.add("except @CancelledError as @error:")
        lines.add("    @fired = @bucket.entries.pop(@task, None) is None and @is_ours(@deadline, @task)")
        lines.add("    @task = None")
        lines.add("    if @fired: raise @cold.timed_out(@deadline) from @error")
        lines.add("    raise")
    lines.add("finally:")
    if shape.budget:
        lines.add("    @set_deadline(@outer)")
        lines.add("    @deadline.left = True")
    if shape.budget and shape.is_async:
        # Gone from the table: it fired, and its cancel is to be taken back on this way out too.
        lines.add("    if @task is not None and @bucket.entries.pop(@task, None) is None: @is_ours(@deadline, @task)")
    if shape.bulkhead:
        lines.add("    @give(@slot)")
        lines.add(f"    if @queue: {'@room' if shape.roomed else '@cold'}.hand_over()")


_OWN_WAYS = {"door": "refusal_here", "refuse": "refuse", "succeeded": "succeed"}
"""What a wrapper with many breakers asks of the breaker itself."""

HOT = (
    "buckets",
    "calls",
    "circuit",
    "counter",
    "fn",
    "give",
    "members",
    "new_deadline",
    "pool",
    "queue",
    "rooms",
    "take",
)
"""What a wrapper's closure may hold: each cell costs every call a little, so it is only what a healthy call needs."""

COLD = (
    "adopt",
    "door",
    "find",
    "find_of",
    "find_room",
    "find_room_of",
    "first",
    "gave_up",
    "give_back",
    "hand_over",
    "interrupted",
    "next_slice",
    "now",
    "recover",
    "refuse",
    "settled",
    "slow",
    "succeeded",
    "timed_out",
)
"""What only leaves the straight path: attributes of one object in the closure."""


class Lines:
    """Source lines with an indentation; `@` stands for our prefix."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line.replace("@", PREFIX))

    def deeper(self) -> None:
        self._depth += 1

    def shallower(self) -> None:
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
