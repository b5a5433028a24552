"""A decorated callable looks like the plain one to whoever inspects it."""

from __future__ import annotations

import abc
import asyncio
import copy
import functools
import inspect
import pickle
import pydoc
import sys
import typing
from typing import Annotated, Any

import pytest

from resilience import BreakerConfig, OnOpen, breaker, compose, describe, retry, timeout

guard = breaker("looks", BreakerConfig())


def Depends(dependency):
    """Stands for FastAPI's marker of the same name."""
    return ("depends on", dependency)


def token():
    return "token"


def plain(
    first: int, /, second: str = "b", *rest: float, third: Annotated[int, "meta"] = Depends(token), **more: Any
) -> list[int]:
    """Say what it does."""
    return [first]


async def plain_async(first: int, second: str = "b") -> list[int]:
    """Say what it does."""
    return [first]


plain.__dict__["route"] = "/plain"

decorated = guard(plain)
decorated_async = guard(plain_async)

pairs = pytest.mark.parametrize(("ours", "theirs"), [(decorated, plain), (decorated_async, plain_async)])


@guard
def module_level(text):
    return text


@guard
async def module_level_async(text):
    return text


@guard
@functools.lru_cache
def module_level_cached(text):
    return text


class Outer:
    class Client:
        @guard
        def ask(self, text):
            return text

        @staticmethod
        @guard
        def static(text):
            return text


class TestAttributes:
    @pairs
    @pytest.mark.parametrize(
        "name",
        ["__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__defaults__", "__kwdefaults__"],
    )
    def test_attributes_are_kept(self, ours, theirs, name):
        """What describes a function is the same."""
        assert getattr(theirs, name) == getattr(ours, name)

    @pairs
    def test_wrapped_is_the_function(self, ours, theirs):
        """`__wrapped__` leads to the plain function."""
        assert theirs is ours.__wrapped__

    def test_own_attributes_are_kept(self):
        """What somebody put on the function is on the wrapper."""
        assert "/plain" == decorated.route

    def test_own_attributes_of_the_function_stay_as_they_were(self):
        """Decorating writes nothing on the plain function."""
        assert ["route"] == list(vars(plain))

    @pairs
    def test_code_names_are_the_functions(self, ours, theirs):
        """Profilers and tracebacks read the names off the code."""
        assert (theirs.__name__, theirs.__qualname__) == (ours.__code__.co_name, ours.__code__.co_qualname)

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
    def test_type_parameters_are_kept(self):
        """`def f[T]` stays generic."""
        scope = {}
        exec("def same[T](value: T) -> T: return value", scope)
        assert scope["same"].__type_params__ == guard(scope["same"]).__type_params__

    def test_an_abstract_method_stays_abstract(self):
        """Nobody can make an instance by decorating what is missing."""

        class Client(abc.ABC):
            @guard
            @abc.abstractmethod
            def ask(self): ...

        with pytest.raises(TypeError):
            Client()

    def test_a_deprecation_text_is_kept(self):
        """`warnings.deprecated` and the like put texts on functions."""

        def old(): ...

        old.__deprecated__ = "use new"
        assert "use new" == guard(old).__deprecated__


class TestInspection:
    @pairs
    def test_signature(self, ours, theirs):
        """`inspect.signature` sees no difference."""
        assert inspect.signature(theirs) == inspect.signature(ours)

    @pairs
    def test_signature_without_following_wrapped(self, ours, theirs):
        """The wrapper's own parameter list is the function's, names, kinds and defaults."""
        bare = functools.partial(inspect.signature, follow_wrapped=False)
        assert bare(theirs).parameters == bare(ours).parameters

    def test_a_signature_that_was_set_is_kept(self):
        """Frameworks set `__signature__`; it goes on."""

        def fn(*args): ...

        fn.__signature__ = inspect.signature(lambda a, b: None)
        assert "(a, b)" == str(inspect.signature(guard(fn)))

    @pairs
    def test_type_hints(self, ours, theirs):
        """`typing.get_type_hints` resolves the texts in the function's own module."""
        hints = functools.partial(typing.get_type_hints, include_extras=True)
        assert hints(theirs) == hints(ours)

    def test_type_hints_by_globals(self):
        """A framework that looks for names in `__globals__` of what is unwrapped finds them."""
        unwrapped = inspect.unwrap(decorated)
        parameter = inspect.signature(decorated).parameters["third"]
        assert Annotated[int, "meta"] == eval(parameter.annotation, unwrapped.__globals__)

    def test_dependency_defaults_are_the_very_objects(self):
        """`Depends(...)` in a default is found by identity."""
        ours = inspect.signature(decorated).parameters["third"].default
        assert plain.__kwdefaults__["third"] is ours

    def test_coroutine_function_stays_one(self):
        """Frameworks ask before they await."""
        assert inspect.iscoroutinefunction(decorated_async)

    def test_plain_function_stays_plain(self):
        """Frameworks ask before they send a function to a thread."""
        assert not inspect.iscoroutinefunction(decorated)

    def test_it_is_a_function(self):
        """Not an object that looks like one: binding, `isfunction` and `__code__` are there."""
        assert inspect.isfunction(decorated)

    @pairs
    def test_source_is_the_functions(self, ours, theirs):
        """`inspect.getsource` shows what the user wrote."""
        assert inspect.getsource(theirs) == inspect.getsource(ours)

    @pairs
    def test_help(self, ours, theirs):
        """`help()` prints the same."""
        assert pydoc.plain(pydoc.render_doc(theirs)) == pydoc.plain(pydoc.render_doc(ours))

    def test_help_of_a_class(self):
        """`help()` lists a decorated method among the methods."""
        assert "ask(self, text)" in pydoc.plain(pydoc.render_doc(Outer.Client))


class TestPickling:
    @pytest.mark.parametrize(
        "function", [module_level, module_level_async, module_level_cached, Outer.Client.ask, Outer.Client.static]
    )
    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_by_name(self, function, protocol):
        """A decorated function is pickled by its name, whatever the protocol."""
        if protocol < 4 and "." in function.__qualname__ and sys.version_info < (3, 4):
            pytest.skip("nested names need protocol 4")
        assert function is pickle.loads(pickle.dumps(function, protocol))

    def test_of_a_bound_method(self):
        """A bound method travels with its object."""
        bound = pickle.loads(pickle.dumps(Outer.Client().ask))
        assert "hello" == bound("hello")

    def test_of_what_has_no_name(self):
        """A decorated partial says why it can't be pickled."""
        with pytest.raises(TypeError, match="partial with policies has no name to be pickled by"):
            pickle.dumps(guard(functools.partial(plain, 1)))

    @pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
    @pytest.mark.parametrize("function", [module_level, module_level_cached, guard(functools.partial(plain, 1))])
    def test_a_copy_is_the_function_itself(self, function, how):
        """As with every function; so an object that holds one can be copied deeply."""
        assert function is how(function)


class TestObjects:
    """What is no plain function keeps its looks through a proxy."""

    def test_partial_keeps_its_parts(self):
        """`func`, `args` and `keywords` are there."""
        part = guard(functools.partial(plain, 1, second="c"))
        assert (plain, (1,), {"second": "c"}) == (part.func, part.args, part.keywords)

    def test_partial_signature(self):
        """The signature is that of what is left to give."""
        part = functools.partial(plain, 1)
        assert inspect.signature(part) == inspect.signature(guard(part))

    def test_partial_of_a_coroutine_function(self):
        """It is told from a plain one, decorated or not."""
        assert inspect.iscoroutinefunction(guard(functools.partial(plain_async, 1)))

    def test_instance_keeps_attributes_and_type(self):
        """A client object stays usable as one."""

        class Client:
            """Asks."""

            base = "http://provider"

            def __call__(self, text: str) -> str:
                return text

        client = guard(Client())
        assert ("http://provider", True, "Asks.") == (client.base, isinstance(client, Client), client.__doc__)

    def test_instance_signature(self):
        """The signature is that of `__call__` without self."""

        class Client:
            def __call__(self, text: str, *, size: int = 3) -> str:
                return text

        assert "(text: 'str', *, size: 'int' = 3) -> 'str'" == str(inspect.signature(guard(Client())))

    def test_async_instance_is_known_by_its_call_method(self):
        """Starlette asks `iscoroutinefunction(obj.__call__)` of an object."""

        class Client:
            async def __call__(self, text):
                return text

        assert inspect.iscoroutinefunction(guard(Client()).__call__)

    def test_plain_instance_is_known_by_its_call_method(self):
        """And sends the others to a thread."""

        class Client:
            def __call__(self, text):
                return text

        assert not inspect.iscoroutinefunction(guard(Client()).__call__)

    def test_builtin(self):
        """A builtin keeps name, doc and signature."""
        found = guard(len)
        assert ("len", len.__doc__, inspect.signature(len)) == (
            found.__name__,
            found.__doc__,
            inspect.signature(found),
        )

    def test_cache_is_reachable(self):
        """`cache_info` and `cache_clear` work on a decorated cache."""
        cached = guard(functools.lru_cache(lambda text: text))
        cached("a"), cached("a")
        before = cached.cache_info().hits
        cached.cache_clear()
        assert (1, 0) == (before, cached.cache_info().hits)

    def test_cache_of_a_method_is_reachable(self):
        """Also through the instance."""

        class Client:
            @guard
            @functools.lru_cache
            def ask(self, text):
                return text

        client = Client()
        client.ask("a"), client.ask("a")
        assert 1 == client.ask.cache_info().hits

    def test_register_of_a_single_dispatch(self):
        """A decorated generic function takes further implementations, and uses them."""

        @guard
        @functools.singledispatch
        def show(value):
            return "something"

        @show.register
        def _(value: int):
            return "a number"

        assert ("something", "a number") == (show("a"), show(1))

    def test_dispatch_of_a_single_dispatch(self):
        """And its table can be asked."""
        generic = functools.singledispatch(plain)
        assert plain is guard(generic).dispatch(object)

    def test_overloads_stay_registered(self):
        """`typing.get_overloads` goes by the names, which are kept."""

        @typing.overload
        def double(value: int) -> int: ...
        @typing.overload
        def double(value: str) -> str: ...
        def double(value):
            return value * 2

        assert 2 == len(typing.get_overloads(guard(double)))


class TestFastAPI:
    """The real framework, where it is installed."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("fastapi")
        pytest.importorskip("httpx")

    @staticmethod
    def _get(endpoint, path="/things/3?size=2"):
        import fastapi
        from fastapi.routing import APIRoute

        app = fastapi.FastAPI(routes=[APIRoute("/things/{number}", endpoint, response_model=None)])
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": path.partition("?")[0],
            "raw_path": path.partition("?")[0].encode(),
            "query_string": path.partition("?")[2].encode(),
            "headers": [],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("test", 80),
            "client": ("test", 1),
            "root_path": "",
        }
        asyncio.run(app(scope, receive, send))
        return b"".join(message.get("body", b"") for message in sent)

    def test_an_endpoint_gets_path_query_and_dependencies(self):
        """A decorated endpoint is called with what its signature asks for."""
        import fastapi

        def header() -> str:
            return "token"

        endpoint_globals = {"fastapi": fastapi, "Annotated": Annotated, "header": header}
        exec(
            "async def endpoint(number: int, token: Annotated[str, fastapi.Depends(header)], size: int = 1):\n"
            "    return [number, size, token]\n",
            endpoint_globals,
        )
        decorate = compose(guard, timeout(30), retry(2, idempotent=True))
        assert b'[3,2,"token"]' == self._get(decorate(endpoint_globals["endpoint"]))

    def test_a_decorated_dependency(self):
        """What an endpoint depends on may be decorated, also an async callable object."""
        import fastapi

        class Header:
            async def __call__(self):
                return "token"

        def endpoint(number: int, token=fastapi.Depends(guard(Header()))):
            return [number, token]

        endpoint.__annotations__["number"] = int
        assert b'[3,"token"]' == self._get(guard(endpoint))


def test_a_wrapper_describes_itself():
    """`fn.resilience` is what `describe` tells."""
    assert describe(decorated) is decorated.resilience


def test_an_instance_as_class_attribute_is_no_method():
    """A callable object in a class body does not bind, and a decorated one doesn't either."""

    class Ask:
        def __call__(self, *args):
            return args

    class Client:
        ask = guard(Ask())

    assert ("hello",) == Client().ask("hello")


def test_a_cache_of_a_method_is_one_object_on_the_class():
    """`Client.ask` is what stands in the class body, as with a function."""

    class Client:
        @guard
        @functools.lru_cache
        def ask(self, text):
            return text

    assert vars(Client)["ask"] is Client.ask


def test_a_fallback_gets_the_arguments_of_the_call():
    """Whatever the shape: the arguments the caller gave, and the instance of a method."""
    bypass = breaker(
        "bypassed", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=lambda *args, **kwargs: (args, kwargs)
    )
    bypass.force_open("test")

    class Client:
        def __call__(self, *args, **kwargs): ...

        @bypass
        @functools.lru_cache
        def cached(self, *args, **kwargs): ...

        @bypass
        def method(self, *args, **kwargs): ...

        def bound(self, *args, **kwargs): ...

    client = Client()
    plain_call = (("a",), {"b": 1})
    method_call = ((client, "a"), {"b": 1})
    shapes = [
        (plain_call, bypass(lambda *args, **kwargs: None)),
        (plain_call, bypass(client)),
        (plain_call, bypass(functools.partial(plain, 1))),
        (plain_call, functools.partial(compose(bypass).call, plain)),
        (method_call, client.method),
        (method_call, client.cached),
        (method_call, bypass(client.bound)),
    ]
    assert [expected for expected, _ in shapes] == [ask("a", b=1) for _, ask in shapes]


def test_a_predicate_gets_the_arguments_of_the_call():
    """`unless` of a decorated object is asked with what the caller gave."""
    seen = []
    asked = breaker("asked", BreakerConfig(), unless=lambda *args: seen.append(args))
    asked(functools.partial(lambda *args: args))("a")
    assert [("a",)] == seen
