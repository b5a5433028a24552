"""What can't be protected is refused when it is decorated, with words that help."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings

import pytest

from resilience import (
    BreakerConfig,
    CompositionWarning,
    ConfigurationError,
    breaker,
    bulkhead,
    compose,
    describe,
    idempotent,
    interruptible,
    retry,
    timeout,
    uninterruptible,
)

guard = breaker("refused", BreakerConfig())
again = retry(2, idempotent=True)
slots = bulkhead(max_in_flight=1)

every_policy = pytest.mark.parametrize("policy", [guard, again, slots, compose(guard, again)])


class TestNoFunctions:
    @every_policy
    def test_a_class(self, policy):
        """A class is made, not called: its methods are what can be decorated."""
        with pytest.raises(ConfigurationError, match="got the class Client: decorate its methods"):

            @policy
            class Client: ...

    @every_policy
    def test_a_property(self, policy):
        """The message says where the policy goes."""
        with pytest.raises(ConfigurationError, match="put the policy below @property"):
            policy(property(lambda self: 1))

    @pytest.mark.parametrize(
        "thing",
        [None, 5, "name", [], functools.cached_property(len), functools.partialmethod(len), staticmethod(5)],
    )
    @every_policy
    def test_what_can_not_be_called(self, policy, thing):
        """Anything that is not callable is named by its type."""
        with pytest.raises(ConfigurationError, match="fn must be a function"):
            policy(thing)

    def test_a_policy_below_a_property(self):
        """The other way round works."""

        class Client:
            @property
            @guard
            def base(self):
                return "http://provider"

        assert "http://provider" == Client().base

    def test_a_policy_below_a_cached_property(self):
        """So does a cached property."""

        class Client:
            @functools.cached_property
            @guard
            def base(self):
                return object()

        client = Client()
        assert client.base is client.base


def decorated_in_every_way():
    class Client:
        def bound(self): ...

        @guard
        def method(self): ...

    return {
        "function": guard(lambda: None),
        "staticmethod": guard(staticmethod(lambda: None)),
        "classmethod": guard(classmethod(lambda cls: None)),
        "partial": guard(functools.partial(print)),
        "builtin": guard(len),
        "bound method": guard(Client().bound),
        "method of an instance": Client().method,
    }


every_way = pytest.mark.parametrize("shape", decorated_in_every_way())


class TestTwoOfAKind:
    @every_way
    def test_one_above_the_other(self, shape):
        """Two breakers on one function can't both be meant."""
        with pytest.raises(ConfigurationError, match="a function takes one breaker, got two"):
            guard(decorated_in_every_way()[shape])

    def test_in_one_composition(self):
        """In a set alike."""
        with pytest.raises(ConfigurationError, match="a function takes one retry, got two"):
            compose(again, again)

    @every_way
    def test_others_are_added(self, shape):
        """A policy of another kind joins the wrapper, whatever the shape."""
        found = describe(again(decorated_in_every_way()[shape]))
        assert ["retry", "breaker"] == [layer.layer.value for layer in found.layers]

    def test_a_second_policy_makes_no_second_layer(self):
        """A method that was decorated is described by one list, and its wrapper wraps the plain function."""

        class Client:
            @guard
            def ask(self): ...

        assert inspect.unwrap(Client.ask) is again(Client().ask).__func__.__wrapped__


class TestMarks:
    @every_way
    @pytest.mark.parametrize("mark", [idempotent, interruptible, uninterruptible, interruptible(max_workers=2)])
    def test_above_a_policy(self, mark, shape):
        """A mark above a policy would come too late: it must stand next to the function."""
        with pytest.raises(ConfigurationError, match="stands above a policy of .*: move it down"):
            mark(decorated_in_every_way()[shape])

    @pytest.mark.parametrize(
        "marked",
        [
            idempotent(lambda: None),
            functools.partial(idempotent(lambda *args: None), 1),
            functools.lru_cache(idempotent(lambda: None)),
            idempotent(staticmethod(lambda: None)),
            idempotent(classmethod(lambda cls: None)),
            idempotent(functools.partial(print)),
            interruptible()(idempotent(lambda: None)),
        ],
    )
    def test_is_read_through_what_wraps_the_function(self, marked):
        """A promise of the function is one of what only calls it."""
        retry(2)(marked)

    def test_on_a_call_method(self):
        """The promise may stand on `__call__` of a class."""

        class Client:
            @idempotent
            def __call__(self): ...

        retry(2)(Client())

    def test_on_a_method(self):
        """A bound method has its function's marks."""

        class Client:
            @idempotent
            def ask(self): ...

        retry(2)(Client().ask)

    def test_a_made_up_attribute_is_no_promise(self):
        """An object that has every attribute one asks for has promised nothing."""

        class Anything:
            def __getattr__(self, name):
                return lambda *args: None

            def __call__(self): ...

        with pytest.raises(ConfigurationError, match="put @idempotent next to the function"):
            retry(2)(Anything())
        with pytest.raises(ConfigurationError, match="put @interruptible next to the function"):
            timeout(1)(Anything())

    def test_on_what_takes_no_attributes(self):
        """A builtin can't carry a mark, and the message says what can be done."""
        with pytest.raises(ConfigurationError, match="wrap it in a function, or use the policy's own argument"):
            idempotent(len)

    def test_on_no_function(self):
        """A mark marks a function."""
        with pytest.raises(ConfigurationError, match="@idempotent marks a function, got int"):
            idempotent(5)


class TestPassAs:
    @pytest.mark.parametrize(
        "target",
        [
            lambda text: text,
            functools.partial(lambda text, more: text, "a"),
            functools.lru_cache(lambda text: text),
            "method",
        ],
    )
    def test_a_parameter_that_is_not_there(self, target):
        """The seconds can't be handed to a function that has no parameter for them, whatever its shape."""

        class Client:
            def ask(self, text): ...

            def __call__(self, text): ...

        with pytest.raises(ConfigurationError, match="pass_as must be a parameter of .* got 'seconds'"):
            timeout(1, pass_as="seconds")(Client() if target == "method" else target)

    @pytest.mark.parametrize(
        "shape",
        [
            lambda fn: fn,
            functools.partial,
            lambda fn: functools.partial(functools.partial(fn)),
            functools.lru_cache,
            lambda fn: type("Client", (), {"__call__": lambda self, text, seconds=None: fn(text, seconds)})(),
        ],
    )
    @pytest.mark.parametrize(
        ("expected", "args", "kwargs"), [(30, ("a",), {}), (5, ("a", 5), {}), (5, ("a",), {"seconds": 5})]
    )
    def test_a_parameter_that_is_there(self, shape, expected, args, kwargs):
        """It is handed the seconds left, or those the caller gave by place or name if they are fewer."""
        ask = timeout(30, pass_as="seconds")(shape(lambda text, seconds=None: seconds))
        assert expected - 1 < ask(*args, **kwargs) <= expected

    def test_a_parameter_that_a_partial_has_taken(self):
        """What was given to a partial by place is no parameter any more."""
        with pytest.raises(ConfigurationError, match="pass_as must be a parameter"):
            timeout(30, pass_as="seconds")(functools.partial(lambda seconds, text: text, 5))

    def test_what_does_not_tell_its_parameters(self):
        """A builtin without a signature gets the benefit of the doubt."""
        found = {}
        timeout(30, pass_as="seconds")(found.update)(text="a")
        assert {"text", "seconds"} == set(found)


def foreign(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)

    return inner


class TestForeignDecorators:
    def test_a_copied_description_is_not_ours(self):
        """`functools.wraps` copies `resilience` onto a wrapper that is not ours."""
        copied = foreign(guard(lambda: None))
        assert hasattr(copied, "resilience")
        with pytest.raises(ConfigurationError, match="fn must be a function decorated with a policy"):
            describe(copied)

    def test_a_copy_is_wrapped_as_it_is(self):
        """A policy above a foreign decorator does not jump over it."""
        called = []

        def noting(fn):
            @functools.wraps(fn)
            def inner():
                called.append("foreign")
                return fn()

            return inner

        @again
        @noting
        @guard
        def ask():
            called.append("function")

        ask()
        assert ["foreign", "function"] == called

    def test_a_mark_above_a_foreign_wrapper_is_allowed(self):
        """It stands next to a function that is not ours."""
        again_above = retry(2)(idempotent(foreign(guard(lambda: "answer"))))
        assert "answer" == again_above()

    def test_order_that_is_kept_is_not_warned_about(self):
        """A retry outside a breaker is right, also with something between them."""
        again(foreign(guard(lambda: None)))

    @pytest.mark.parametrize(
        "between",
        [
            foreign,
            lambda fn: foreign(foreign(fn)),
            functools.partial,
            functools.lru_cache,
            lambda fn: functools.partial(foreign(fn)),
            lambda fn: foreign(functools.partial(fn)),
        ],
    )
    def test_order_that_is_broken_is_warned_about(self, between):
        """A breaker outside a retry counts one failure for many attempts."""
        with pytest.warns(CompositionWarning, match="breaker stands outside retry"):
            guard(between(again(lambda: None)))

    def test_the_order_below_a_bound_method(self):
        """A method of a proxied client is looked through."""

        class Client:
            @again
            def ask(self): ...

        with pytest.warns(CompositionWarning, match="breaker stands outside retry"):
            guard(functools.partial(Client().ask))

    def test_two_of_one_kind_with_something_between(self):
        """A retry of a retry multiplies: also with a foreign decorator between the two."""
        with pytest.warns(CompositionWarning, match="retry stands outside retry"):
            again(foreign(again(lambda: None)))

    @pytest.mark.parametrize(
        "decorate",
        [guard, compose(guard), lambda fn: guard(staticmethod(fn)), lambda fn: guard(functools.partial(fn))],
    )
    def test_the_warning_points_at_the_decorator(self, decorate):
        """It names the user's file, so that it is shown once for each place."""
        with pytest.warns(CompositionWarning) as caught:
            decorate(foreign(again(lambda: None)))
        assert [__file__] == [warning.filename for warning in caught]

    def test_a_ring_of_wrapped_ends(self):
        """`__wrapped__` that leads back to itself is survived."""

        def first(): ...
        def second(): ...

        first.__wrapped__, second.__wrapped__ = second, first
        guard(first)

    def test_wrapped_without_end(self):
        """So is an object that has a new `__wrapped__` each time."""

        class Endless:
            def __init__(self):
                self.number = next(numbers)

            @property
            def __wrapped__(self):
                return Endless()

            def __call__(self):
                return "answer"

        numbers = itertools.count()
        assert "answer" == guard(Endless())()

    def test_a_foreign_proxy_is_not_skipped(self):
        """A wrapt decorator around a static method claims to be one; what it does is not lost."""
        wrapt = pytest.importorskip("wrapt")
        called = []

        @wrapt.decorator
        def noting(wrapped, instance, args, kwargs):
            called.append("foreign")
            return wrapped(*args, **kwargs)

        class Client:
            @guard
            @noting
            @staticmethod
            def static():
                return "static"

            @guard
            @noting
            def method(self):
                return self

            @noting
            def bound(self):
                return self

        client = Client()
        assert ("static", client, client) == (client.static(), client.method(), guard(client.bound)())
        assert ["foreign"] * 3 == called

    def test_a_foreign_proxy_keeps_its_instance(self):
        """A wrapt decorator that asks for the instance is told it, through us."""
        wrapt = pytest.importorskip("wrapt")

        @wrapt.decorator
        def told(wrapped, instance, args, kwargs):
            return instance

        class Client:
            @guard
            @told
            def method(self): ...

        client = Client()
        assert client is client.method()
        assert "refused" in str(describe(client.method))
        assert describe(client.method) is client.method.resilience

    def test_nothing_is_warned_about_a_plain_stack(self):
        """The four on one function in any order are as they should be."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for first, second in itertools.permutations([guard, again, slots], 2):
                first(second(lambda: None))
