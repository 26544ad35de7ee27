"""What all figures share: colours, names of columns as labels, and files."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.text import Text
from PIL import Image

from bnaf._files import stored_file
from bnaf.errors import SettingsError

INK = "#1b2733"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DATA, MODEL = COLOURS[:2]  # both stand out from white and from black
FORMATS = ("png", "svg", "pdf")
ABOVE: dict[str, Any] = {  # a legend above axes, out of the way of what is drawn
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "borderaxespad": 0.2,
    "handlelength": 1.6,
    "columnspacing": 1.2,
}

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.titlesize": 11,
    "font.size": 9,
    "grid.alpha": 0.12,
    "grid.color": INK,
    "grid.linewidth": 0.8,
    "image.cmap": "viridis",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 160,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the library's style, and leave matplotlib's settings as they were."""
    with matplotlib.rc_context(STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of some inches, apart from matplotlib's global list of figures."""
    return Figure(figsize=(width, height), layout="constrained")


def set_labels(axes: Axes, *, x: str | None = None, y: str | None = None) -> None:
    """Label axes with text as it stands, dollar signs included."""
    if x is not None:
        axes.set_xlabel(x, parse_math=False)
    if y is not None:
        axes.set_ylabel(y, parse_math=False)


def set_title(axes: Axes, title: str) -> None:
    """Give axes a title, as it stands."""
    axes.set_title(title, parse_math=False)


def show_legend(axes: Axes, **settings: Any) -> None:
    """Show the legend of axes, its entries as they stand."""
    for text in axes.legend(**settings).get_texts():
        text.set_parse_math(False)


def check_format(path: Path, format: str | None = None) -> str:
    """Return the format of a figure: as given, or as its name says.

    Raises:
        SettingsError: If it is none that figures are written in.
    """
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise SettingsError(
            f"Figures are written as {', '.join(FORMATS)}, got {kind or str(path)!r}; choose one "
            "of them by the name of the file."
        )
    return kind


def encode_figure(
    figure: Figure, format: str, *, transparent: bool = False, colours: int | None = None
) -> bytes:
    """Return a figure as the content of a file; signs that the font lacks are no reason to warn.

    Args:
        figure: What to write.
        format: "png", "svg" or "pdf".
        transparent: Whether the ground is left out.
        colours: Most colours of a PNG, 256 at most; few make a small file.
    """
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # tick labels are plain numbers
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format=format, metadata=undated, transparent=transparent)
    if format != "png" or colours is None:
        return file.getvalue()
    reduced = io.BytesIO()
    Image.open(file).convert("RGB").quantize(colours).save(reduced, format="PNG", optimize=True)
    return reduced.getvalue()


def write_figure(
    figure: Figure,
    path: Path | str,
    *,
    overwrite: bool = False,
    format: str | None = None,
    colours: int | None = None,
) -> None:
    """Write a figure to a file, whole or not at all.

    Args:
        figure: What to write.
        path: A file that ends in .png, .svg or .pdf.
        overwrite: Whether it may replace one that exists.
        format: "png", "svg" or "pdf", where the name does not tell.
        colours: Most colours of a PNG, 256 at most; few make a small file.

    Raises:
        SettingsError: If the format is another.
        StorageError: If the file exists and may not be replaced, or cannot be written.
    """
    path = Path(path)
    content = encode_figure(figure, check_format(path, format), colours=colours)
    with stored_file(path, overwrite=overwrite) as file:
        file.write(content)
