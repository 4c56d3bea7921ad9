"""Calls like earlier ones go to the kernels that those have compiled.

Triton inspects every argument of every launch, which would be most of an eager call. All that it
looks for makes up the kind of a call here, and most of that is asked once of a batch, of parameters
and of an output, as none of these can change.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from attrs import frozen
from triton.runtime import driver

from .arguments import Call
from .launch import Launcher
from .plan import Plan

MOST_KNOWN = 1024
"""Kinds that are kept at once."""


@frozen(cache_hash=True)
class Kind:
    """All that checks, plan and kernels of a call depend on in a part of it, addresses aside."""

    facts: tuple[object, ...]


class Part(NamedTuple):
    """A batch, parameters or an output: its kind, and its groups by address."""

    kind: Kind
    groups: Any


class Launch(NamedTuple):
    """A kernel that Triton has compiled, its grid, and what it is given behind the call."""

    compiled: Any
    grid: tuple[int, int, int]
    rest: tuple[object, ...]


class Known(NamedTuple):
    """A kind of call."""

    plan: Plan
    launches: Sequence[Launch]

    def replay(self, call: Call, device: int) -> None:
        """Launch all kernels on the current stream; Triton's launch hooks are not asked."""
        stream = driver.active.get_current_stream(device)
        # Triton takes plain tuples apart three times as fast as named ones.
        plain = tuple([tuple(group) if isinstance(group, tuple) else group for group in call])
        for compiled, (x, y, z), rest in self.launches:
            function, metadata = compiled.function, compiled.packed_metadata
            compiled.run(x, y, z, stream, function, metadata, None, None, None, plain, *rest)


class KnownCalls:
    """The kinds of calls that were made.

    Args:
        launch: starts a kernel and returns what was compiled for it. Calls stay unknown if it
            returns nothing.
    """

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._parts: WeakKeyDictionary[object, Part] = WeakKeyDictionary()
        self._known: dict[object, Known] = {}

    def part(self, whole: Any, look: Callable[[Any], Part]) -> Part:
        """What `look` says of a part of a call; asked once, as long as somebody keeps the part."""
        part = self._parts.get(whole)
        if part is None:
            part = self._parts[whole] = look(whole)
        return part

    def find(self, kind: object) -> Known | None:
        """A call like this one."""
        return self._known.get(kind)

    def record(self, kind: object, plan: Plan, run: Callable[[Launcher], None]) -> None:
        """Run a call of a new kind, and remember what it launched."""
        launches: list[Launch] = []
        complete = True

        def launch(kernel: Any, grid: tuple[int, int, int], *args: Any, **options: Any) -> None:
            nonlocal complete
            compiled = self._launch(kernel, grid, *args, **options)
            complete = complete and compiled is not None
            if compiled is not None:
                launches.append(Launch(compiled, grid, args[1:]))

        run(launch)
        if complete and launches:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[kind] = Known(plan, launches)
