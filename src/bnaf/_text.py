"""Names and numbers as people read them."""

import math
import unicodedata

MANY = 1e15  # from which on a number is written with its power of ten


def plain_name(name: str, longest: int = 28) -> str:
    r"""Return a name fit to be shown: on one line, without control characters, and not endless.

    Example:
        >>> plain_name("price\n(\x07$)"), plain_name("a" * 40, 6)
        ('price (�$)', 'aaaaa…')
    """
    name = " ".join(name.split())
    name = "".join("�" if unicodedata.category(sign)[0] == "C" else sign for sign in name)
    return name if len(name) <= longest else name[: longest - 1] + "…"


def printable(text: str) -> str:
    r"""Return text without control characters, which a terminal would obey.

    Example:
        >>> printable("a\x1b[31mb\tc")
        'a�[31mb c'
    """
    text = text.replace("\t", " ").replace("\n", " ")
    return "".join("�" if unicodedata.category(sign) in ("Cc", "Cf") else sign for sign in text)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as text, empty where there is none.

    Example:
        >>> number(-1.23456), number(None), number(float("nan")), number(-1.5e298)
        ('-1.2346', '', '', '-1.5e+298')
    """
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}" if abs(value) < MANY else f"{value:.6g}"


def typeset(value: float, digits: int, *, sign: bool = False) -> str:
    """Return a number with a true minus sign, as a page shows it.

    Example:
        >>> typeset(-1.26, 1), typeset(2, 2, sign=True), typeset(float("-inf"), 2)
        ('−1.3', '+2.00', '−∞')
    """
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    form = f".{digits}f" if abs(value) < MANY else ".6g"
    return f"{value:{'+' if sign else ''}{form}}".replace("-", "−")
