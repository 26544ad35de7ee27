"""The kinds of columns by name: a new one is a file of its own, and a line here."""

from bnaf.columns.category import Category
from bnaf.columns.constant import Constant
from bnaf.columns.date import Date
from bnaf.columns.grid import Grid
from bnaf.columns.kind import Kind
from bnaf.columns.number import Number

KINDS: dict[str, type[Kind]] = {
    Category.name: Category,
    Grid.name: Grid,
    Number.name: Number,
    Date.name: Date,
    Constant.name: Constant,
}
