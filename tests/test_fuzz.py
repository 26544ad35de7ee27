"""A short part of the mutated files and commands that make test-fuzz runs."""

import fuzz
import pytest


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return fuzz.make_originals(tmp_path_factory.mktemp("fuzz") / "originals")


@pytest.mark.parametrize("part", range(4))
def test_mutated_files_and_commands_end_in_order(originals, tmp_path, part):
    ended = {
        fuzz.run_case(case, 0, originals, tmp_path / "case").split()[-1]
        for case in range(40 * part, 40 * part + 40)
    }
    assert "refused" in ended
    assert ended & {"loaded", "read", "resumed", "done"}
