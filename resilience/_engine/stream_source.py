"""The source of straight paths for generator functions: a wrapper that is a generator itself.

It runs nothing before its first item is asked for: only then it looks at the door and
takes a slot, and it gives the slot back when the stream has ended, however it has. A
plain generator is delegated to with `yield from`, which costs next to nothing per item
and hands `send`, `throw` and `close` through; an async one with a loop.

Whatever is odd is handed to the plan, whose stream is delegated to in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.deadline import Passed
from resilience._engine.source import Lines, Shape, add_count, add_door, add_success, wrapper_source
from resilience._engine.streams import Held

if TYPE_CHECKING:
    from resilience._engine.signature import Signature


def stream_source_of(shape: Shape, sig: Signature) -> str:
    """The source of a factory whose parameters become the closure of a generator function."""
    assert not shape.timed, "a breaker that looks at how long calls take wants the plan's streams"
    assert shape.is_async or not (shape.budget or shape.first_item), "a plain generator with a limit takes the plan"
    return wrapper_source(shape, sig, _async_body if shape.is_async else _plain_body)


def shared_by_streams(shape: Shape) -> dict[str, Any]:
    """What the source of all of them names, besides what is the same for all wrappers."""
    shared: dict[str, Any] = {
        "BaseException": BaseException,
        "GeneratorExit": GeneratorExit,
        "Held": Held,
        "Passed": Passed,
        "StopAsyncIteration": StopAsyncIteration,
        "StopIteration": StopIteration,
        "isinstance": isinstance,
    }
    if shape.is_async:
        from resilience._engine.timers import StreamLimit

        shared["StreamLimit"] = StreamLimit
    return shared


# ---------------------------------------------------------------------------------------------- plain generators
def _plain_body(lines: Lines, shape: Shape, sig: Signature) -> None:
    slow = f"return (yield from @cold.slow({sig.passed}))"
    add_door(lines, shape, slow)
    if shape.bulkhead:
        lines.add("if @queue: " + slow)
        lines.add("try: @slot = @take()")
        lines.add("except @IndexError: @slot = None")
        lines.add("if @slot is None: " + slow)
        lines.add("try:")
        lines.deeper()
    began = _note_start(lines, shape)
    lines.add("try:")
    lines.deeper()
    lines.add(f"@stream = @fn({sig.passed})")
    if shape.retry:
        _watch_first_item(lines)
    else:
        lines.add("@result = yield from @stream")
    lines.shallower()
    _settle_failure(lines, shape)
    lines.add("else:")
    lines.deeper()
    if shape.breaker:
        add_success(lines, shape)
    lines.add("return @result")
    lines.shallower()
    lines.add("@stream = None")
    lines.add("try:")
    lines.add(f"    return (yield from @cold.recover({_recovered(shape, sig, began)}))")
    lines.add("finally:")
    lines.add("    del @failed")
    if shape.bulkhead:
        lines.shallower()
        lines.add("finally:")
        lines.add("    @give(@slot)")
        lines.add("    if @queue: @cold.hand_over()")


def _watch_first_item(lines: Lines) -> None:
    """Only before the first item may the stream be begun anew, so that one is handed on by hand."""
    lines.add("try:")
    lines.add("    @item = @next(@stream)")
    lines.add("    @begun = True")
    lines.add("    while True:")
    lines.add("        @thrown = None")
    lines.add("        try: @sent = yield @item")
    lines.add("        except @BaseException as @error: @thrown = @error")
    lines.add("        if @thrown is not None:")
    lines.add("            try:")
    lines.add("                if @isinstance(@thrown, @GeneratorExit):")
    lines.add("                    @stream.close()")
    lines.add("                    raise @thrown")
    lines.add("                @item = @stream.throw(@thrown)")
    lines.add("            finally: @thrown = None")
    lines.add("        elif @sent is not None: @item = @stream.send(@sent)")
    lines.add("        else:")
    lines.add("            @item = None")
    lines.add("            @result = yield from @stream")
    lines.add("            break")
    lines.add("except @StopIteration as @error: @result = @error.value")


# ---------------------------------------------------------------------------------------------- async generators
def _async_body(lines: Lines, shape: Shape, sig: Signature) -> None:
    _async_entrance(lines, shape, sig)
    framed = shape.bulkhead or shape.budget
    if framed:
        lines.add("try:")
        lines.deeper()
    began = _note_start(lines, shape)
    lines.add("try:")
    lines.deeper()
    lines.add(f"@stream = @fn({sig.passed})")
    _hand_through(lines, shape, first=True)
    lines.shallower()
    lines.add("except @StopAsyncIteration:")
    lines.deeper()
    if shape.breaker:
        add_success(lines, shape)
    lines.add("return")
    lines.shallower()
    _settle_failure(lines, shape)
    if shape.breaker:
        lines.add("except @CancelledError as @error:")
        if shape.budget:
            # In force again, or nobody would see that it has fired.
            lines.add("    @set_deadline(@deadline)")
            lines.add("    try: @cold.interrupted(@episode, @error, @started)")
            lines.add("    finally: @set_deadline(@outer)")
        else:
            lines.add("    @cold.interrupted(@episode, @error, @started)")
        lines.add("    raise")
    lines.add("try:")
    lines.deeper()
    lines.add("try:")
    lines.add(f"    @stream = @cold.recover({_recovered(shape, sig, began)})")
    lines.add("finally:")
    lines.add("    del @failed")
    _hand_through(lines, shape)
    lines.shallower()
    lines.add("except @StopAsyncIteration: return")
    if framed:
        lines.shallower()
        _async_exit(lines, shape)


def _async_entrance(lines: Lines, shape: Shape, sig: Signature) -> None:
    """Door, timer and slot; whatever is not at hand is the plan's business, whose stream is handed through."""
    slow = f"@stream = @cold.slow({sig.passed})"
    lines.add("@stream = None")
    add_door(lines, shape, slow)
    if shape.budget:
        lines.add("if @stream is None:")
        lines.deeper()
        lines.add("@bucket = @buckets.last()")
        lines.add("if @bucket is None or @bucket.loop._thread_id != @get_ident(): @bucket = @buckets.here()")
        lines.add("@started = @time.monotonic()")
        lines.add("@outer = @outer_deadline()")
        lines.add("if @bucket is None or (@outer is not None and @past(@outer, @started)): " + slow)
        lines.shallower()
    elif shape.first_item:
        lines.add("if @stream is None:")
        lines.add("    @outer = @outer_deadline()")
        lines.add("    if @outer is not None and @past(@outer, @time.monotonic()): " + slow)
    if shape.bulkhead:
        lines.add(f"if @stream is None and @queue: {slow}")
        lines.add("if @stream is None:")
        lines.add("    try: @slot = @take()")
        lines.add("    except @IndexError: @slot = None")
        lines.add(f"    if @slot is None: {slow}")
        lines.add("    else: @held = @Held(@slot, @cold.give_back)")
    lines.add("if @stream is not None:")
    lines.deeper()
    lines.add("try:")
    lines.deeper()
    _hand_through(lines, Shape(is_async=True))
    lines.shallower()
    lines.add("except @StopAsyncIteration: return")
    lines.shallower()
    if shape.budget:
        lines.add("@deadline = @new_deadline()")
        lines.add("@deadline.started = @started")
        lines.add("@deadline.left = False")
        lines.add("@loop = @bucket.loop")
        lines.add("@bucket = None")
        lines.add("@limit = @StreamLimit(@deadline, @loop)")


def _async_exit(lines: Lines, shape: Shape) -> None:
    """The way out of slot and timer."""
    if shape.budget:
        lines.add("except @Passed: @late = True")
        lines.add("except @CancelledError as @error:")
        lines.add("    if @limit.is_ours(): raise @cold.timed_out(@deadline) from @error")
        lines.add("    raise")
    lines.add("finally:")
    if shape.budget:
        lines.add("    @limit.leave()")
    if shape.bulkhead:
        lines.add("    @held.leave()")
    if shape.budget:
        # It ran out while the consumer had the stream.
        lines.add("raise @cold.timed_out(@deadline)")


def _hand_through(lines: Lines, shape: Shape, *, first: bool = False) -> None:
    """What `yield from` is to plain generators; ends in StopAsyncIteration.

    With a budget its marks are put on for each step; else it is only noted when the step
    under way began, where a deadline watches it.
    """
    _step(lines, shape, "@cold.first(@stream)" if first and shape.first_item else "@stream.__anext__()")
    if first and shape.retry:
        lines.add("@begun = True")
    lines.add("while True:")
    lines.deeper()
    # Thrown in outside of the handler: in there the stream's own exceptions would be raised
    # "during the handling of" it.
    lines.add("@thrown = None")
    lines.add("try: @sent = yield @item")
    lines.add("except @GeneratorExit as @error:")
    lines.add("    @thrown = @error")
    lines.add("    break")
    lines.add("except @BaseException as @error: @thrown = @error")
    _step(lines, shape, "@stream.asend(@sent)", "@stream.athrow(@thrown)")
    lines.shallower()
    lines.add("try:")
    lines.add("    await @stream.aclose()")
    lines.add("    raise @thrown")
    lines.add("finally: @thrown = None")


def _step(lines: Lines, shape: Shape, step: str, thrown: str = "") -> None:
    if shape.budget:
        lines.add("if @limit.passed:")
        lines.add("    await @stream.aclose()")
        lines.add("    raise @Passed(@deadline)")
        lines.add("@outer = @outer_deadline()")
        lines.add("if @outer is not @deadline.outer: @deadline.outer = @outer")
        lines.add("@set_deadline(@deadline)")
        lines.add("@limit.task = @task = @task_of(@loop)")
        lines.add("if @task is not None and (@deadline.noted or @task.cancelling()): @note(@deadline, @task)")
        lines.add("@started = @time.monotonic()")
        lines.add("try:")
        lines.deeper()
    elif shape.breaker:
        lines.add("@started = None if @outer_deadline() is None else @time.monotonic()")
    if thrown:
        lines.add(f"if @thrown is None: @item = await {step}")
        lines.add("else:")
        lines.add(f"    try: @item = await {thrown}")
        lines.add("    finally: @thrown = None")
    else:
        lines.add(f"@item = await {step}")
    if shape.budget:
        lines.shallower()
        lines.add("finally:")
        lines.add("    @set_deadline(@outer)")
        lines.add("    @task = None")
        lines.add("if @limit.fired: @limit.is_ours()")
        lines.add("@limit.task = None")


# ---------------------------------------------------------------------------------------------- both
def _note_start(lines: Lines, shape: Shape) -> str:
    add_count(lines, shape)
    if shape.retry:
        lines.add("@begun = False")
    if not shape.stateful:
        return "0.0"
    lines.add("@began = @cold.now()")
    return "@began"


def _settle_failure(lines: Lines, shape: Shape) -> None:
    """Report a failure in place where nothing outside has to be known; only one before the first item is retried."""
    lines.add("except @Exception as @error:")
    lines.add("    @fault = @cold.settled(@episode, @error)")
    lines.add("    if @fault is not None and @begun: raise" if shape.retry else "    if @fault is not None: raise")
    lines.add("    @failed = @error")


def _recovered(shape: Shape, sig: Signature, began: str) -> str:
    begun = "@begun" if shape.retry else "True"
    return f"@episode, @failed, @fault, {sig.positional}, {sig.keywords}, {began}, {begun}"
