"""Numbers and dates as people write them: 1,234, $3.50, 16%, 12/31/2024."""

import re
from collections.abc import Sequence
from datetime import date

from bnaf.tables.arrow import parses

NUMBER = re.compile(r"([-+]?)([$€£¥]?) ?(\d{1,3}(?:,\d{3})+|\d+)(\.\d*)? ?(%?)")
DAY = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})")
ORDERS = {  # and where year, month and day stand
    "month/day/year": ("/", (2, 0, 1)),
    "day/month/year": ("/", (2, 1, 0)),
    "day.month.year": (".", (2, 1, 0)),
    "day-month-year": ("-", (2, 1, 0)),
    "year/month/day": ("/", (0, 1, 2)),
}
NEARLY_ALL = 0.95
LOOKED_AT = 10_000
EPOCH = date(1970, 1, 1)


def read_number(text: str) -> float | None:
    """Return the number that a text stands for, if it stands for one.

    Thousands may be set apart by commas, a currency stand in front and a percent sign behind,
    which leaves the number in per cent.

    Example:
        >>> read_number("-$1,234.50"), read_number("16%"), read_number("1,5")
        (-1234.5, 16.0, None)
    """
    try:
        return float(text)
    except ValueError:
        found = NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    sign, _, whole, rest, _ = found.groups(default="")
    return float(f"{sign}{whole.replace(',', '')}{rest}")


def currencies(texts: Sequence[str]) -> set[str]:
    """Return the currency signs that numbers are written with.

    Example:
        >>> sorted(currencies(["$3", "2", "€1,000"]))
        ['$', '€']
    """
    found = (NUMBER.fullmatch(text.strip()) for text in texts)
    return {match[2] for match in found if match is not None and match[2]}


def read_days(texts: Sequence[str]) -> dict[str, list[int]]:
    """Return days since 1970 that texts stand for, by each order that all can be read by.

    Example:
        >>> read_days(["12/31/1970", "01/02/1970"])
        {'month/day/year': [364, 1]}
        >>> [*read_days(["01/02/1970"])]
        ['month/day/year', 'day/month/year']
    """
    found = {name: _days(texts, *order) for name, order in ORDERS.items()}
    return {name: days for name, days in found.items() if days is not None and days}


def _days(texts: Sequence[str], mark: str, places: tuple[int, int, int]) -> list[int] | None:
    """Return days since 1970 that texts stand for; none where one stands for no day."""
    days = []
    for text in texts:
        match = DAY.fullmatch(text)
        if match is None or match[2] != mark:
            return None
        parts = (match[1], match[3], match[4])
        year, month, day = (parts[place] for place in places)
        try:
            days.append((date(int(year), int(month), int(day)) - EPOCH).days)
        except ValueError:
            return None
        if len(year) != 4:
            return None
    return days


def told_marks(name: str, texts: Sequence[str]) -> str:
    """Return what to do about texts that are numbers or dates; nothing where they are none.

    Args:
        name: Name of their column.
        texts: The texts, each once.

    Example:
        >>> told_marks("price", ["$3.50", "$1,200"])
        "; looks like numbers such as '$3.50': to read them, --as price=number (in Python
         kinds={'price': 'number'})"
    """
    texts = [text for text in texts[:LOOKED_AT] if text]
    numbers = [number for number in map(read_number, texts) if number is not None]
    marked = next((text for text in texts if NUMBER.fullmatch(text) and not parses(text)), "")
    if marked and len(numbers) >= NEARLY_ALL * len(texts):
        kind = "whole" if all(map(float.is_integer, numbers)) else "number"
        return f"; looks like numbers such as {marked!r}: {_advice(name, kind)}"
    orders = [*read_days(texts)]
    if len(orders) == 1:
        return f"; looks like dates, {orders[0]}: {_advice(name, 'date')}"
    if orders:
        return "; looks like dates, but which is the day? To read them, write 2024-12-31"
    return ""


def _advice(name: str, kind: str) -> str:
    return f"to read them, --as {name}={kind} (in Python kinds={{{name!r}: {kind!r}}})"
