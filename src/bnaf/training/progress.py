"""What a run shows while it lasts: a bar on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

BAR_SECONDS, LINE_SECONDS = 0.2, 5.0


@dataclass(frozen=True)
class InUnits:
    """Wish for a display in the units of a table: log-likelihoods in place of losses.

    Args:
        train: What a log-likelihood of training rows is more than minus their loss.
        valid: The same for validation rows.
    """

    train: float = 0.0
    valid: float = 0.0

    def tell(self, loss: float, valid: float | None, best: float | None) -> list[str]:
        """Return what losses say, in words."""
        parts = [f"log-likelihood {self.train - loss:.4f} nats per row"]
        for name, value in (("validation", valid), ("best", best)):
            parts += [] if value is None else [f"{name} {self.valid - value:.4f}"]
        return parts


class View(NamedTuple):
    """What there is to show at some moment; losses are in nats per row."""

    step: int
    share: float
    steps_per_second: float
    loss: float
    valid: float | None
    best: float | None
    learning_rate: float
    seconds_left: float
    units: InUnits | None = None

    @property
    def pace(self) -> str:
        """How far it is and how fast."""
        left = f"{format_seconds(self.seconds_left)} left"
        return f"step {self.step}  {self.steps_per_second:.1f} steps/s  {left}"

    @property
    def quality(self) -> str:
        """How well it goes."""
        if self.units is not None:
            parts = self.units.tell(self.loss, self.valid, self.best)
            return "  ".join([*parts, f"rate {self.learning_rate:.2g}"])
        parts = [f"loss {self.loss:.4f} nats"]
        if self.valid is not None:
            parts.append(f"valid {self.valid:.4f}")
        if self.best is not None:
            parts.append(f"best {self.best:.4f}")
        return "  ".join([*parts, f"rate {self.learning_rate:.2g}"])


@runtime_checkable
class Progress(Protocol):
    """Display of a run."""

    interval: float
    """Seconds between two views."""

    def show(self, view: View) -> None:
        """Show how far the run has come."""

    def close(self, summary: str) -> None:
        """Show how it ended."""


class Silence:
    """Display of nothing."""

    interval = float("inf")

    def show(self, view: View) -> None:
        pass

    def close(self, summary: str) -> None:
        pass


class Lines:
    """Plain lines, every few seconds and at the end.

    Args:
        file: Text file they go to.
        label: What every line begins with, where several runs share the file.
        interval: Seconds between two lines.
    """

    def __init__(self, file: Any, *, label: str = "", interval: float = LINE_SECONDS) -> None:
        self.file, self.label, self.interval = file, label, interval

    def show(self, view: View) -> None:
        self._write(f"{100 * view.share:3.0f} %  {view.pace}  {view.quality}")

    def close(self, summary: str) -> None:
        self._write(summary)

    def _write(self, text: str) -> None:
        print(f"{self.label}{text}", file=self.file, flush=True)


class Bar:
    """Bar drawn by Rich, and a line below it; both fit a terminal of 80 columns.

    Args:
        file: The terminal.
    """

    interval = BAR_SECONDS

    def __init__(self, file: Any) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(20), TaskProgressColumn(), TextColumn("{task.description}"))
        self.console = Console(file=file)
        self.bar = RichProgress(*columns, console=self.console)
        self.task = self.bar.add_task("", total=1.0)
        self.live = Live(console=self.console, transient=True, auto_refresh=False)

    def show(self, view: View) -> None:
        from rich.console import Group
        from rich.text import Text

        self.bar.update(self.task, completed=view.share, description=view.pace)
        self.live.start()
        quality = Text(view.quality, no_wrap=True, overflow="ellipsis")
        self.live.update(Group(self.bar, quality), refresh=True)

    def close(self, summary: str) -> None:
        self.live.stop()
        self.console.print(summary, highlight=False)


def make_progress(wanted: bool, file: Any = None) -> Progress:
    """Return a bar where the file is a terminal, lines where it is not.

    Args:
        wanted: False for silence.
        file: Text file; standard error by default.
    """
    file = sys.stderr if file is None else file
    if not wanted:
        return Silence()
    return Bar(file) if file.isatty() else Lines(file)


class Pace:
    """When to show the next view, and how long a run has still to go.

    Args:
        interval: Seconds between views.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.started = self.shown = time.monotonic()
        self.step = 0
        self.share = 0.0

    def begin(self, step: int, share: float) -> None:
        """Note where this part of the run starts."""
        self.step, self.share = step, share

    def due(self) -> bool:
        """Return whether the last view is old enough."""
        now = time.monotonic()
        if now - self.shown < self.interval:
            return False
        self.shown = now
        return True

    def estimate(self, step: int, share: float) -> tuple[float, float]:
        """Return steps per second and seconds left."""
        spent = max(time.monotonic() - self.started, 1e-9)
        gained = share - self.share
        left = spent / gained * (1 - share) if gained > 0 else float("inf")
        return (step - self.step) / spent, left


def format_seconds(seconds: float) -> str:
    """Return a duration as minutes and seconds.

    Example:
        >>> format_seconds(75.2), format_seconds(3661), format_seconds(float("inf"))
        ('1:15', '1:01:01', '?')
    """
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
