"""Requests to stop that wait for the end of a step."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Context in which Ctrl-C and SIGTERM ask for an end rather than force it.

    A second signal of the same kind does what it would have done before. Outside the main thread,
    where Python gives no say in signals, nothing changes.

    Args:
        pass_on: What else a signal is told to, if anything.
    """

    def __init__(self, pass_on: Callable[[int], None] | None = None) -> None:
        self.requested = False
        self._pass_on = pass_on
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number in [*self._before]:
            self._restore(number)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore(signal.Signals(number))
        if self._pass_on is not None:
            self._pass_on(number)

    def _restore(self, number: signal.Signals) -> None:
        if number in self._before:  # a signal may come while this is at work
            signal.signal(number, self._before[number])
            self._before.pop(number, None)


def forwarded_interrupts() -> Interrupts:
    """Return a context in which processes started from now on are asked to end as well.

    What came to the whole group, such as Ctrl-C at a terminal, has reached them already. So they
    are sent the other signal, which does not count as a second of the same kind.
    """
    others = {child.pid for child in multiprocessing.active_children()}

    def pass_on(number: int) -> None:
        other = signal.SIGINT if number == signal.SIGTERM else signal.SIGTERM
        for child in multiprocessing.active_children():
            if child.pid is not None and child.pid not in others:
                os.kill(child.pid, other)

    return Interrupts(pass_on)
