"""Decorated methods behave as methods: binding, inheritance, super(), class bodies of all kinds."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import weakref

import pytest

from resilience import BreakerConfig, Consecutive, breaker, bulkhead, describe, retry

guard = breaker("methods", BreakerConfig())


class Client:
    """Asks."""

    base = "http://provider"

    @guard
    def ask(self, text):
        return f"{self.base}/{text}"

    @guard
    async def ask_later(self, text):
        return f"{self.base}/{text}"

    @classmethod
    @guard
    def made(cls, text):
        return cls.base, text

    @guard
    @classmethod
    def made_too(cls, text):
        return cls.base, text

    @staticmethod
    @guard
    def joined(*parts):
        return "/".join(parts)


class Special(Client):
    base = "http://special"

    @guard
    def ask(self, text):
        return f"<{super().ask(text)}>"

    @guard
    async def ask_later(self, text):
        return f"<{await super().ask_later(text)}>"


def test_super_of_a_decorated_method():
    """Both wrappers apply, each around its own function."""
    assert "<http://special/a>" == Special().ask("a")


def test_super_of_an_async_method():
    """The same when awaited."""
    assert "<http://special/a>" == asyncio.run(Special().ask_later("a"))


@pytest.mark.parametrize("name", ["made", "made_too"])
def test_a_class_method_sees_the_subclass(name):
    """Inherited class methods get the class they are called on, in both decorator orders."""
    assert ("http://special", "a") == getattr(Special, name)("a")


def test_a_static_method_of_class_and_instance():
    """It gets what is given, from either."""
    assert ("a/b", "a/b") == (Client.joined("a", "b"), Client().joined("a", "b"))


def test_a_method_called_on_its_class():
    """`Client.ask(client, …)` is the same call."""
    assert "http://provider/a" == Client.ask(Client(), "a")


def test_bound_methods_are_equal():
    """As those of one object and one function are."""
    client = Client()
    assert client.ask == client.ask


def test_the_class_attribute_is_the_wrapper():
    """Looked up twice, it is one object."""
    assert vars(Client)["ask"] is Client.ask


@pytest.mark.parametrize("name", ["ask", "made", "made_too", "joined"])
def test_a_method_is_described(name):
    """From the class and from an instance."""
    assert describe(getattr(Client, name)) is describe(getattr(Client(), name))


def test_an_overridden_method_can_be_plain():
    """A subclass that decorates nothing takes the protection off."""

    class Plain(Client):
        def ask(self, text):
            return text

    assert not hasattr(Plain().ask, "resilience")


def test_one_breaker_for_all_instances(registry):
    """The policies belong to the function, not to the object."""

    class Failing:
        @breaker("shared", BreakerConfig(Consecutive(2)))
        def ask(self):
            raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            Failing().ask()
    assert registry.get("shared").is_open()


def test_a_bound_method_of_one_object(registry):
    """Decorating a bound method leaves the class and other objects as they were."""

    class Plain:
        def ask(self):
            return self

    plain = Plain()
    ours = breaker("bound", BreakerConfig())(plain.ask)
    assert (plain, plain) == (ours(), ours.__self__)
    assert not hasattr(Plain.ask, "resilience")


def test_adding_to_a_bound_method_leaves_the_class_as_it_was():
    """A retry on one object's method is not one on all."""
    client = Client()
    ours = retry(2, idempotent=True)(client.ask)
    assert (["retry", "breaker"], ["breaker"]) == tuple(
        [layer.layer.value for layer in describe(fn).layers] for fn in (ours, Client.ask)
    )


def test_a_dataclass_method():
    """Frozen, with slots: the class is made anew, and its methods still work."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class Request:
        text: str

        @guard
        def send(self):
            return self.text

    assert "a" == Request("a").send()


def test_a_decorated_default_factory():
    """A decorated function is a value like any other."""

    @dataclasses.dataclass
    class Request:
        headers: dict = dataclasses.field(default_factory=guard(lambda: {"Accept": "*/*"}))

    assert {"Accept": "*/*"} == Request().headers


def test_a_field_that_holds_a_decorated_function():
    """`dataclasses.asdict` copies deeply, and a function stays itself."""

    @dataclasses.dataclass
    class Route:
        handler: object
        cached: object

    handler, cached = guard(lambda: None), guard(functools.lru_cache(lambda: None))
    copied = dataclasses.asdict(Route(handler, cached))
    assert handler is copied["handler"]
    assert cached is copied["cached"]


def test_a_method_of_an_enum():
    """In an enum's body a decorated function is a method, no member."""

    class Provider(enum.Enum):
        MAIL = "mail"

        @guard
        def ask(self):
            return self.value

    assert ("mail", 1) == (Provider.MAIL.ask(), len(Provider))


def test_a_method_that_names_itself():
    """`__set_name__` and name mangling are as before."""

    class Private:
        @guard
        def __secret(self, __hidden):
            return __hidden

        def tell(self):
            return self.__secret("told")

    assert "told" == Private().tell()


def test_a_method_with_slots():
    """An object without `__dict__` is fine: nothing is kept on it."""

    class Slotted:
        __slots__ = ("__weakref__",)

        @guard
        def ask(self):
            return "answer"

    assert "answer" == Slotted().ask()


def test_a_call_keeps_no_object_alive():
    """After the call the instance is free to go."""

    class Plain:
        @bulkhead(max_in_flight=1)
        @guard
        def ask(self, text):
            return text

        @bulkhead(max_in_flight=1)
        @functools.lru_cache(maxsize=0)
        def cached(self, text):
            return text

    plain = Plain()
    plain.ask("a"), plain.cached("a")
    gone = weakref.ref(plain)
    del plain
    assert gone() is None


def test_metaclass_methods():
    """A method of a metaclass binds to the class."""

    class Meta(type):
        @guard
        def named(cls):
            return cls.__name__

    class Made(metaclass=Meta): ...

    assert "Made" == Made.named()


def test_dunder_methods():
    """Special methods are looked up on the type, where the wrapper is a function."""

    class Box:
        @guard
        def __len__(self):
            return 3

        @guard
        def __getitem__(self, key):
            return key

        @guard
        async def __aenter__(self):
            return self

        @guard
        async def __aexit__(self, *error):
            return None

    async def main():
        async with Box() as box:
            return len(box), box["key"]

    assert (3, "key") == asyncio.run(main())
