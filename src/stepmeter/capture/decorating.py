"""Functions of every kind, timed: plain ones, coroutines, generators and async generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry.context import attach, get_current

if TYPE_CHECKING:
    from stepmeter.capture.span import Span

Function = TypeVar("Function", bound=Callable[..., Any])


def timed(function: Function, make: Callable[[], Span]) -> Function:
    """Wrap a function so that each call is a span of its own.

    A generator's whole iteration is one span, from the first item asked for to its end; between items, what consumes
    them is not inside the span.

    Args:
        function: A function, coroutine function, generator function or async generator function.
        make: Makes the span of a call.

    Returns:
        A function of the same kind.
    """
    if inspect.isasyncgenfunction(function):
        return cast("Function", _async_generator(function, make))
    if inspect.isgeneratorfunction(function):
        return cast("Function", _generator(function, make))
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with make():
                return await function(*args, **kwargs)

        return cast("Function", awaited)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast("Function", called)


class _Inside:
    """Makes the span current while the generator runs, and what was current before while it rests."""

    __slots__ = ("_before", "_resting")

    def __init__(self) -> None:
        self._resting = self._before = get_current()

    def __enter__(self) -> None:
        self._before = get_current()
        attach(self._resting)

    def __exit__(self, *_: object) -> None:
        self._resting = get_current()
        attach(self._before)


def _begin(make: Callable[[], Span]) -> tuple[Span, _Inside]:
    before = get_current()
    span = make().start()
    inside = _Inside()
    attach(before)
    return span, inside


def _generator(function: Callable[..., Any], make: Callable[[], Span]) -> Callable[..., Any]:
    @functools.wraps(function)
    def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span, inside = _begin(make)
        with inside:
            generator = function(*args, **kwargs)
        resume = functools.partial(next, generator)
        try:
            while True:
                with inside:
                    item = resume()
                try:
                    sent = yield item
                except GeneratorExit:
                    with inside:
                        generator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
                else:
                    resume = functools.partial(generator.send, sent)
        except StopIteration as stop:
            return stop.value
        except GeneratorExit:
            raise
        except BaseException as error:
            span.end(error=error)
            raise
        finally:
            span.end()

    return generated


def _async_generator(function: Callable[..., Any], make: Callable[[], Span]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def generated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span, inside = _begin(make)
        with inside:
            generator = function(*args, **kwargs)
        resume = generator.__anext__
        try:
            while True:
                with inside:
                    item = await resume()
                try:
                    sent = yield item
                except GeneratorExit:
                    with inside:
                        await generator.aclose()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.athrow, error)
                else:
                    resume = functools.partial(generator.asend, sent)
        except StopAsyncIteration:
            return
        except GeneratorExit:
            raise
        except BaseException as error:
            span.end(error=error)
            raise
        finally:
            span.end()

    return generated
