"""Categories: one level of several, yes or no, or one of few numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bnaf._text import plain_name
from bnaf.columns.kind import (
    UNKNOWN,
    Kind,
    Parts,
    Snapped,
    Values,
    counted,
    label_codes,
    labelled,
    told_empty,
)
from bnaf.columns.lattice import find_lattice
from bnaf.columns.ranges import finite_numbers
from bnaf.columns.stored import flag_of, numbers_of, refused, text_of, texts_of, whole_of
from bnaf.errors import TableError
from bnaf.tables.column import TEXTS, Column, number_text
from bnaf.tables.names import list_columns
from bnaf.tables.table import TYPES

RARE = 5  # rows below which a level is pooled, a tenth of them in a short table
MOST_LEVELS = 1000
MOST_POOLED = 20_000  # levels of a pool that are known by name
YES_NO = 2
LISTED = 12  # levels in a message
ORDERED = ("category", "ordered")  # types whose levels are declared


@dataclass(frozen=True, eq=False)
class Category(Kind):
    """One of several levels; those that are rare, and any that was never seen, share a pool.

    The pool always holds a level that was seen, the rarest if none is rare, so that what was
    never seen has a mass and no draw is without a value. An empty cell is a level of its own
    where there were some; else it is integrated out, and later columns see nothing of it, or where
    it is conditioned on, the pool.

    Args:
        known: Levels with a code of their own, in the order of the codes.
        pooled: Levels of the pool, whose code is the next.
        shares: Shares of the pool's levels, and last of all that was never seen.
        numeric: Whether levels are numbers.
        type: Type of the column.
        of: Element type of the levels of a category.
        empty: Cells that were empty; their code is the last.
        order: Levels that a category has, in its own order, also those that no row has; the known
            and the pooled ones where it is empty.
    """

    name: ClassVar[str] = "category"
    known: tuple[Any, ...]
    pooled: tuple[Any, ...]
    shares: tuple[float, ...]
    numeric: bool
    type: str
    of: str
    empty: int
    order: tuple[str, ...] = ()

    @classmethod
    def fit(cls, column: Column, weights: Values | None = None) -> "Category":
        """Return the levels of a column.

        Raises:
            TableError: If it has none.
        """
        numeric = column.holds == "numbers"
        if not numeric:
            column = column.as_texts()
        present = finite_numbers(column) if numeric else column.present
        if not len(present):
            raise TableError(
                f"{list_columns([column.name])} is empty throughout, expected some level; leave "
                "it out."
            )
        levels, counts = _tally(column, present, weights)
        rare = _rare(counts, len(present))
        pooled = counts[rare]
        unseen = 0.0 if column.type == "bool" else max(0.5, float((pooled <= 1).sum()))
        named = np.zeros(len(pooled), bool)
        named[np.argsort(-pooled, kind="stable")[:MOST_POOLED]] = True  # others count as unseen
        unseen += float(pooled[~named].sum())
        pool = [level for level, rarely in zip(levels, rare, strict=True) if rarely]
        pooled = pooled[named]
        shares = np.array([*pooled, unseen]) / (pooled.sum() + unseen)
        return cls(
            tuple(level for level, rarely in zip(levels, rare, strict=True) if not rarely),
            tuple(level for level, kept in zip(pool, named, strict=True) if kept),
            tuple(float(f"{share:.9e}") for share in shares),
            numeric,
            column.type,
            column.of,
            int(column.empty.sum()),
            tuple(dict.fromkeys(column.levels)) if column.type in ORDERED else (),
        )

    @property
    def levels(self) -> int:
        return len(self.known) + 1 + bool(self.empty)

    @property
    def numbers(self) -> int:
        return 0

    @property
    def may_be_empty(self) -> bool:
        return bool(self.empty)

    @property
    def empty_level(self) -> int:
        return self.levels - 1 if self.empty else -1

    def describe(self) -> str:
        total = len(self.known) + len(self.pooled)
        if total == YES_NO:
            both = sorted([*self.known, *self.pooled])
            text = f"yes/no: {self._shown(both[0])} or {self._shown(both[1])}"
        else:
            what = "value" if self.numeric else "level"
            text = f"category of {counted(total, what)}"
            if self.type == "ordered" or self.numeric:
                text = f"ordered {text}"
            if len(self.pooled) > 1:
                text += f", {len(self.pooled):,} rare ones pooled"
        return told_empty(text, self.empty)

    @property
    def textual(self) -> bool:
        return not self.numeric and self.of == "text"

    @property
    def labels(self) -> tuple[str, ...]:
        return () if self.numeric else self.order or (*self.known, *self.pooled)

    def codes(self, column: Column) -> Values:
        return super().codes(column) if self.numeric else label_codes(column, self.labels)

    def column(self, name: str, codes: Values) -> Column:
        if self.numeric:
            return super().column(name, codes)
        return labelled(name, codes, self.labels, self.type, self.of)

    def _shown(self, level: Any) -> str:
        text = number_text(level, self.type) if self.numeric else level
        return plain_name(text, 20) or "''"

    @cached_property
    def _codes(self) -> dict[Any, tuple[float, float]]:
        """Code and log-share of every level; ``None`` stands for those never seen."""
        found: dict[Any, tuple[float, float]] = {
            level: (code, 0.0) for code, level in enumerate(self.known)
        }
        pool = len(self.known)
        for level, share in zip((*self.pooled, None), self.shares, strict=True):
            found[level] = (pool, math.log(share) if share else -math.inf)
        return found

    def encode(self, column: Column) -> Parts:
        names, codes = self._distinct(column)
        found = [self._codes.get(name, self._codes[None]) for name in names]
        found.append((self.levels - 1 if self.empty else math.nan, 0.0))
        table = np.array(found)[np.where(column.empty, len(names), codes)]
        return Parts(table[:, 0].astype(np.float64), None, table[:, 1].astype(np.float64))

    @property
    def given_numbers(self) -> int:
        return int(self.numeric)

    def scores(self, column: Column) -> Parts:
        """Return levels, and of numbers also how large they are, for they have an order."""
        parts = self.encode(column)
        assert parts.level is not None
        parts = parts._replace(level=np.nan_to_num(parts.level, nan=len(self.known)))
        if not self.numeric:
            return parts
        levels = np.array([*self.known, *self.pooled])
        column = column.as_numbers()
        values = np.where(column.empty, levels.mean(), column.values)
        middle = (values - levels.mean()) / (levels.std() or 1.0)
        return parts._replace(number=Snapped(middle, np.zeros_like(middle), np.zeros_like(middle)))

    def _distinct(self, column: Column) -> tuple[list[Any], np.ndarray]:
        """Return the distinct values of a column, as levels are, and which each cell has."""
        if not self.numeric:
            column = column.as_texts()
            return list(column.levels), column.values
        column = column.as_numbers()
        finite_numbers(column)
        values, codes = np.unique(np.where(column.empty, 0.0, column.values), return_inverse=True)
        levels = np.sort(np.array([*self.known, *self.pooled]))
        place = np.searchsorted(levels, values)
        left, right = levels[np.maximum(place - 1, 0)], levels[np.minimum(place, len(levels) - 1)]
        near = np.where(np.abs(values - left) < np.abs(values - right), left, right)
        apart = 1e-6 if self.type.startswith("float") else 0.0  # float32 and 64 of one decimal
        same = np.abs(values - near) <= apart * np.abs(near)
        return [float(n) if s else math.nan for n, s in zip(near, same, strict=True)], codes

    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        assert level is not None
        empty = np.isnan(level) | (self.may_be_empty & (level == self.levels - 1))
        codes = np.where(empty, 0, level).astype(np.int64)
        pool = len(self.known)
        inside = np.flatnonzero(codes == pool)
        shares = np.array(self.shares[:-1])
        if len(inside) and len(shares) > 1:
            drawn = generator.choice(len(shares), len(inside), p=shares / shares.sum())
            codes[inside] = pool + drawn
        everything = (*self.known, *self.pooled)
        if self.numeric:
            values = np.array(everything, dtype=np.float64)[codes]
            return Column(name, self.type, np.where(empty, np.nan, values), empty)
        places = {label: place for place, label in enumerate(self.labels)}
        codes = np.array([places[level] for level in everything])[codes]
        return Column(name, self.type, codes, empty, self.labels, self.of)

    def unusual(self, column: Column) -> str:
        names, codes = self._distinct(column)
        seen = np.array([name in self._codes and name is not None for name in names] or [True])
        wrong = ~seen[np.where(column.empty, 0, codes)] & ~column.empty
        if not wrong.any():
            return ""
        place = int(np.flatnonzero(wrong)[0])
        first = names[codes[place]]
        shown = number_text(column.as_numbers().values[place]) if self.numeric else first
        such = "" if shown == UNKNOWN else f", such as {plain_name(shown, 20)!r}"
        return f"{int(wrong.sum()):,} of levels never seen{such}"

    def expected(self, column: Column) -> str:
        names, codes = self._distinct(column)
        given = [names[code] for code in codes[~column.empty]]
        if all(name in self._codes for name in given) or self._pools(column):
            return ""
        levels = [level for level in self.order or sorted(self.labels) if level in self._codes]
        if self.numeric:
            value = column.as_numbers().present[0]
            levels = sorted([*self.known, *self.pooled], key=lambda level: abs(level - value))
        if len(levels) <= LISTED:
            listed = [self._shown(level) for level in (sorted(levels) if self.numeric else levels)]
            return f"one of {', '.join(listed)}"
        near = levels[:2] if self.numeric else levels[:LISTED]
        return f"one of {len(levels):,} levels, such as {', '.join(map(self._shown, near))}"

    def _pools(self, column: Column) -> bool:
        """Return whether a level that was never seen may be one of the rare ones.

        Numbers must then be on the grid of the others.
        """
        if len(self.pooled) == 1 or (not self.numeric and not self.textual):
            return False
        if not self.numeric:
            return True
        lattice = find_lattice(np.array([*self.known, *self.pooled]))
        return lattice is None or not any(map(lattice.between, column.as_numbers().present))

    def as_dict(self) -> dict[str, Any]:
        return {
            "known": list(self.known),
            "pooled": list(self.pooled),
            "shares": list(self.shares),
            "numeric": self.numeric,
            "type": self.type,
            "of": self.of,
            "empty": self.empty,
            "order": list(self.order),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Category":
        numeric, shares = flag_of(stored, "numeric"), numbers_of(stored, "shares")
        known, pooled = (
            tuple(numbers_of(stored, key).tolist()) if numeric else texts_of(stored, key)
            for key in ("known", "pooled")
        )
        if not pooled or len({*known, *pooled}) != len(known) + len(pooled):
            raise refused("pooled", "levels, each of them once", stored["pooled"])
        if len(shares) != len(pooled) + 1 or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
            raise refused("shares", "shares of the pool that sum to one", stored["shares"])
        if not shares[:-1].sum():
            raise refused("shares", "a level with a share", stored["shares"])
        kind = text_of(stored, "type", TYPES if numeric else TEXTS)
        of, order = text_of(stored, "of", ("text", *TYPES)), _stored_order(stored)
        if order and (numeric or not {*known, *pooled} <= {*order}):
            raise refused("order", "all levels, each of them once", stored["order"])
        if of != "text":
            for level in {*known, *pooled, *order} if not numeric else ():
                _check_number(level)
        empty = whole_of(stored, "empty")
        return cls(known, pooled, tuple(shares.tolist()), numeric, kind, of, empty, order)


def _tally(
    column: Column, present: np.ndarray, weights: Values | None
) -> tuple[list[Any], np.ndarray]:
    """Return the levels of a column in their order, and how many rows each has."""
    kept = None if weights is None else weights[~column.empty]
    if kept is not None:
        kept = kept * (len(kept) / kept.sum())
    found, places = np.unique(present, return_inverse=True)
    counts = np.bincount(places, kept, len(found)).astype(np.float64)
    if column.holds == "numbers":
        return found.tolist(), counts
    levels = [column.levels[code] for code in found]
    if column.type in ORDERED:
        return levels, counts
    order = sorted(range(len(levels)), key=levels.__getitem__)
    return [levels[place] for place in order], counts[order]


def _rare(counts: np.ndarray, rows: int) -> np.ndarray:
    """Return which levels are pooled: the rare ones, or the rarest."""
    rare: np.ndarray = counts < min(RARE, rows / 10)
    rare[np.argsort(-counts, kind="stable")[MOST_LEVELS:]] = True
    if not rare.any():
        rare[np.argmin(counts)] = True
    return rare


def _stored_order(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the order of levels that a file has; older ones have none."""
    order = texts_of(stored, "order") if "order" in stored else ()
    if len({*order}) < len(order):
        raise refused("order", "levels, each of them once", stored["order"])
    return order


def _check_number(level: str) -> None:
    try:
        float({"true": "1", "false": "0"}.get(level, level))
    except ValueError:
        raise refused("known", "levels that are numbers", level) from None
