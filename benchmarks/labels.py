"""What entries are called in results: references stand in brackets, peers under their own names."""

OURS = "OURS"
PLAIN = "(reference) plain function"
WRAPS = "(reference) functools.wraps pass-through"
WRAPT = "(reference) wrapt.decorator pass-through"
EMPTY_METHOD = "(reference) empty method call"
MONOTONIC = "(reference) time.monotonic()"
ASYNCIO_TIMEOUT = "(reference) async with asyncio.timeout(30)"
EXECUTOR = "(reference) ThreadPoolExecutor submit + result"
TUPLE_LOOK_UP = "(reference) dict look-up with a fresh tuple"
STREAK = "(ours) Consecutive"
WINDOW = "(ours) FailureRate"
KEYED = "(ours) Consecutive, by two keys"


def is_reference(name: str) -> bool:
    """Whether an entry is something of the standard library, or an empty wrapper."""
    return name.startswith("(reference)")


def peers_of(times: dict[str, float]) -> dict[str, float]:
    """The peers among the entries of one scenario."""
    return {name: ns for name, ns in times.items() if name != OURS and not name.startswith("(")}
