"""Errors carry their remedy as data, told in Python's words and in those of the command line."""

import pickle

import pytest
import torch

import bnaf
from bnaf.cli.messages import name_option, tell
from bnaf.errors import Argument, Told

CAUGHT = bnaf.TableError("Give ", Argument("delimiter", ";"), " and ", Argument("key"), ".")


def test_a_message_names_arguments_as_python_does():
    assert str(CAUGHT) == "Give delimiter=';' and key=...."
    assert CAUGHT.remedies == (Argument("delimiter", ";"), Argument("key"))


def test_a_message_names_options_at_the_command_line():
    assert tell(CAUGHT) == "Give --delimiter ';' and --key."


def test_text_that_looks_like_an_argument_stays_as_it_is():
    error = bnaf.TableError("Column 'drop_missing=True' {0} is odd.")
    assert tell(error) == str(error) == "Column 'drop_missing=True' {0} is odd."
    assert error.remedies == ()


def test_an_error_reaches_other_processes_whole():
    again = pickle.loads(pickle.dumps(CAUGHT))
    assert (str(again), again.parts) == (str(CAUGHT), CAUGHT.parts)


@pytest.mark.parametrize(
    ("argument", "option"),
    [
        (Argument("drop_missing", True), "--drop-missing"),
        (Argument("dequantise", True), "--dequantise"),
        (Argument("kinds", {"x": "number", "a b": "date"}), "--as x=number --as 'a b=date'"),
        (Argument("dequantise", ["a", "b"]), "--dequantise=a,b"),
        (Argument("header", False), "--no-header"),
        (Argument("overwrite", True), "--force"),
        (Argument("outside", "redraw"), "--redraw"),
        (Argument("folder"), "--data DIR"),
        (Argument("format", "csv"), "--format csv"),
        (Argument("unheard_of", 3), "unheard_of=3"),
    ],
)
def test_arguments_have_options(argument, option):
    assert name_option(argument) == option


def test_missing_values_are_remedied_by_data(tmp_path):
    rows = torch.tensor([[1.0, torch.nan], [2.0, 3.0]])
    with pytest.raises(bnaf.TableError) as caught:
        bnaf.read_table(rows)
    (remedy,) = caught.value.remedies
    assert len(bnaf.read_table(rows, **{remedy.name: remedy.value}, warn=False)) == 1


def test_warnings_are_told_in_parts_too():
    rows = torch.ones(30, 1)
    with pytest.warns(bnaf.TableWarning) as caught:
        bnaf.read_table(rows)
    assert isinstance(caught[0].message, Told)
    assert caught[0].message.remedies == (Argument("drop_constant", True),)
