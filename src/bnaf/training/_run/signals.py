"""Requests to stop that wait for the end of a step."""

import multiprocessing
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Context in which Ctrl-C and SIGTERM ask for an end rather than force it.

    A second signal of the same kind does what it would have done before. Outside the main thread,
    where Python gives no say in signals, nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
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

    def _restore(self, number: signal.Signals) -> None:
        if number in self._before:  # a signal may come while this is at work
            signal.signal(number, self._before[number])
            self._before.pop(number, None)


class Forwarding(Interrupts):
    """Context in which the processes started in it are asked to end, and this one waits for them.

    What came to the whole group, such as Ctrl-C at a terminal, has reached them already. So they
    are sent the other signal, which does not count as a second of the same kind.
    """

    def __enter__(self) -> "Forwarding":
        self._others = {child.pid for child in multiprocessing.active_children()}
        super().__enter__()
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        super()._request(number, frame)
        other = signal.SIGINT if number == signal.SIGTERM else signal.SIGTERM
        for child in multiprocessing.active_children():
            if child.pid is not None and child.pid not in self._others:
                os.kill(child.pid, other)
