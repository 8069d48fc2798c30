"""Dependencies: values that providers make for functions, once for each run, and that are closed at its end.

The signatures are read when a job is declared, so that a wrong one is reported then; a run reads no signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from anyio import get_cancelled_exc_class, move_on_after

from aioelasticjob.errors import ElasticJobError, InvalidSetting, error_text
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.context import Context, InstanceContext, ItemContext
from aioelasticjob.jobs.inspection import name_of

CLOSE_TIMEOUT = 1.0
"""Seconds that a provider may take to close its value when the run is cancelled."""

Provider: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Provider, Provider]


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter as provided: ``database: Annotated[Database, Depends(open_database)]``.

    The provider is called once for each run, however many parameters ask for it; with ``use_cache=False`` once for
    each parameter.
    """

    provider: Provider
    use_cache: bool = True


class ProviderFailed(ElasticJobError):
    """A provider could not make its value, or could not close it."""

    def __init__(self, provider: str, error: BaseException) -> None:
        super().__init__(f"provider {provider} failed: {error_text(error)}")
        self.provider = provider


@dataclass(frozen=True, slots=True)
class RequestedValues:
    """The values that one function asks for."""

    function: Provider
    opens: bool
    """Whether calling the function returns a context manager, which provides the value."""
    provided: Mapping[str, Depends]
    """The providers, by parameter."""
    context: inspect.Parameter | None = None
    """The parameter of a provider that takes the context; a handler gets its context in any case."""

    @property
    def name(self) -> str:
        """The function's name, for people."""
        return name_of(self.function)

    def call(self, context: Context, given: Mapping[str, Any]) -> Any:
        """Call the function with the values that it asks for."""
        if self.context is None:
            return self.function(**given)
        if self.context.kind is inspect.Parameter.POSITIONAL_ONLY:
            return self.function(context, **given)
        return self.function(**given, **{self.context.name: context})


def requested_by(handler: Provider, given: int = 1) -> RequestedValues | None:
    """Return the values that a handler asks for besides its first ``given`` positional arguments; None if there are
    none.

    Raises:
        InvalidSetting: a provider, its own ones included, cannot be called.
    """
    own = list(_parameters(handler))[given:]
    provided = {one.name: depends for one in own if (depends := _depends(one, handler))}
    if not provided:
        return None
    for depends in provided.values():
        _walk(depends.provider, ())
    return RequestedValues(handler, False, provided)


def check_context(role: str, function: Provider, given: type[Context], otherwise: str) -> None:
    """Check that a function is not annotated for another context than it is given.

    ``otherwise`` ends the error for a function that is meant for the other context: it says what else is possible.

    Only an annotation that can be evaluated, and that allows nothing but the other context or built-in types such as
    ``int``, is refused.

    Raises:
        InvalidSetting: names the function, its annotation and what would be right.
    """
    first = next(_parameters(function), None)
    if first is None:
        return
    hint = _hint(first, function)
    if get_origin(hint) is Annotated:
        hint, *_ = get_args(hint)
    union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    meant = [one for one in union if one is not type(None)]
    other = InstanceContext if given is ItemContext else ItemContext
    if not meant or not all(_excludes(one, other) for one in meant):
        return
    said = " | ".join(_type_name(one) for one in union)
    wrong = f"{first.name} is annotated as {said}, but it is given an {given.__name__}: annotate {given.__name__}"
    if any(issubclass(one, other) for one in meant):
        wrong += otherwise
    raise InvalidSetting(role, name_of(function), wrong)


def _type_name(hint: type) -> str:
    return "None" if hint is type(None) else hint.__name__


def _excludes(annotated: object, other: type[Context]) -> bool:
    """Whether a parameter annotated so cannot take the context that is given, given that there is one other."""
    if not isinstance(annotated, type):
        return False
    return issubclass(annotated, other) or (annotated.__module__ == "builtins" and annotated is not object)


@asynccontextmanager
async def provided(
    context: Context, overrides: Overrides, *needs: RequestedValues | None
) -> AsyncIterator[tuple[dict[str, Any], ...]]:
    """Yield the arguments that each of the functions asks for; the functions share one value of each provider.

    An error of the block is raised in every generator that waits at its ``yield``, and then out of this one, even if
    a generator has caught it.

    Raises:
        ProviderFailed: a provider failed at the beginning or at the end; its cause says how.
    """
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        run = _RunValues(context, overrides, stack)
        given = list[dict[str, Any]]()
        for one in needs:
            given.append({} if one is None else await run.arguments(one))
        try:
            yield tuple(given)
        except BaseException as error:
            failure = error
            raise
    if failure is not None:  # a provider has caught the error; the run has failed all the same
        raise failure


class _RunValues:
    """The values of one run."""

    def __init__(self, context: Context, overrides: Overrides, stack: AsyncExitStack) -> None:
        self._context = context
        self._overrides = overrides
        self._stack = stack
        self._made: dict[Provider, Any] = {}
        self._under_way: set[Provider] = set()

    async def arguments(self, needs: RequestedValues) -> dict[str, Any]:
        return {name: await self._value(depends) for name, depends in needs.provided.items()}

    async def _value(self, depends: Depends) -> Any:
        asked = depends.provider
        # a provider that overrides another one may itself depend on it: there the original one is meant
        provider = asked
        if asked not in self._under_way:
            provider = self._overrides.get(asked, asked)
        if depends.use_cache and provider in self._made:
            return self._made[provider]
        needs = _plan(provider)
        self._under_way.add(asked)
        try:
            given = await self.arguments(needs)
        finally:
            self._under_way.discard(asked)
        door = UserCode("it")
        try:
            value = await self._make(needs, given)
        except BaseException as error:  # no ``with``: a provider may leave a cancel scope open until it is closed
            failure = door.as_exception(error)
            raise ProviderFailed(needs.name, failure) from failure
        self._made[provider] = value
        return value

    async def _make(self, needs: RequestedValues, given: Mapping[str, Any]) -> Any:
        if needs.opens:
            return await self._stack.enter_async_context(_ProviderContext(needs, self._context, given))
        value = needs.call(self._context, given)
        return await value if inspect.iscoroutine(value) else value


class _ProviderContext:
    """Wraps a provider's context manager: its exit has a time limit, and an error of it names the provider."""

    def __init__(self, needs: RequestedValues, context: Context, given: Mapping[str, Any]) -> None:
        self._name = needs.name
        self._manager = needs.call(context, given)
        self._waits = hasattr(self._manager, "__aenter__")

    async def __aenter__(self) -> Any:
        if self._waits:
            return await self._manager.__aenter__()
        return self._manager.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        cancelled = isinstance(error, get_cancelled_exc_class())
        door = UserCode("it")
        try:
            if not self._waits:
                return bool(self._manager.__exit__(kind, error, trace))
            if not cancelled:  # without a scope of ours: it would be nested in one that the provider has left open
                return bool(await self._manager.__aexit__(kind, error, trace))
            with move_on_after(CLOSE_TIMEOUT, shield=True):
                return bool(await self._manager.__aexit__(kind, error, trace))
        except BaseException as own:
            failure = door.as_exception(own)
            raise ProviderFailed(self._name, failure) from failure
        return None


def _walk(provider: Provider, above: tuple[Provider, ...]) -> None:
    """Check that a provider and all providers that it depends on can be called."""
    if not (callable(provider) and isinstance(provider, Hashable)):
        raise InvalidSetting("provider", provider, "must be a function, or a class")
    if provider in above:
        circle = (*above[above.index(provider) :], provider)
        shown = " → ".join(name_of(one) for one in circle)
        raise InvalidSetting("provider", name_of(provider), f"needs itself: {shown}")
    for depends in _plan(provider).provided.values():
        _walk(depends.provider, (*above, provider))


@lru_cache(maxsize=4096)
def _plan(provider: Provider) -> RequestedValues:
    """Return the values that a provider asks for: those of other providers, and the context for one more parameter."""
    asked = dict[str, Depends]()
    context = None
    for parameter in _parameters(provider):
        depends = _depends(parameter, provider)
        if depends is not None:
            asked[parameter.name] = depends
        elif parameter.default is parameter.empty:
            if context is not None or not _takes_context(parameter, provider):
                raise InvalidSetting(
                    "provider",
                    name_of(provider),
                    f"parameter {parameter.name} is neither the context nor Annotated[…, Depends(…)]",
                )
            context = parameter
    manager = _manager(provider)
    return RequestedValues(manager or provider, manager is not None, asked, context)


def _manager(provider: Provider) -> Provider | None:
    """Return a function that returns the provider's context manager: the provider itself, or its generator wrapped."""
    function = provider
    if not inspect.isroutine(provider) and not isinstance(provider, partial):
        function = _caller(provider)
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(provider)
    if inspect.isgeneratorfunction(function):
        return contextmanager(provider)
    decorated = inspect.unwrap(function)
    is_generator = inspect.isasyncgenfunction(decorated) or inspect.isgeneratorfunction(decorated)
    return provider if is_generator else None  # made by @contextmanager or @asynccontextmanager


def _caller(provider: Provider) -> Provider:
    """Return the function that runs when an object is called; a function or a class is returned as it is."""
    if inspect.isclass(provider):
        return provider
    method: Provider = getattr(provider, "__call__", provider)  # noqa: B004  # the method itself is looked at
    return method


def _parameters(function: Provider) -> Iterator[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # built in C, or no function: whether the arguments fit is seen when it is called
        return
    for one in parameters:
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            yield one


def _depends(parameter: inspect.Parameter, function: Provider) -> Depends | None:
    """Return the ``Depends`` of a parameter, from its annotation or, as FastAPI also allows, from its default."""
    hint = _hint(parameter, function)
    wanted = hint
    marks = list[Any]()
    if get_origin(hint) is Annotated:
        wanted, *marks = get_args(hint)
    for mark in (*reversed(marks), parameter.default):
        if isinstance(mark, Depends):
            found = mark
        elif type(mark).__name__ == "Depends" and hasattr(mark, "dependency"):  # FastAPI's
            found = Depends(mark.dependency or wanted, mark.use_cache)
        else:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidSetting(
                "signature", name_of(function), f"{parameter.name} is provided by name: no '/' after it"
            )
        return found
    return None


def _hint(parameter: inspect.Parameter, function: Provider) -> Any:
    """Return a parameter's annotation; one that cannot be evaluated is returned as text, unless it names a provider."""
    text = parameter.annotation
    if not isinstance(text, str):
        return text
    try:
        return eval(text, _globals(function))
    except Exception as error:
        if "Depends" in text:
            raise InvalidSetting(
                "signature",
                name_of(function),
                f"the annotation of {parameter.name} cannot be evaluated ({error}):"
                " providers are found by name at the top of their module",
            ) from None
        return text


def _globals(function: Provider) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isclass(function):
        function = function.__init__
    elif not hasattr(function, "__globals__"):
        function = getattr(function, "__call__", function)  # noqa: B004  # the method itself is looked at
    return {**getattr(function, "__globals__", {})}


def _takes_context(parameter: inspect.Parameter, provider: Provider) -> bool:
    hint = _hint(parameter, provider)
    if isinstance(hint, str):  # most likely its names are imported for the type checker only
        return hint.rpartition(".")[2].endswith("Context")
    if hint in (parameter.empty, Any, object):
        return True
    return any(_is_context(one) for one in (hint, *get_args(hint)))


def _is_context(hint: object) -> bool:
    if not isinstance(hint, type):
        return False
    return issubclass(hint, Context) or hint in Context.__mro__ or getattr(hint, "_is_protocol", False)
