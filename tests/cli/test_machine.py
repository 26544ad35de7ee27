"""Commands on a machine whose cores are taken."""

import pytest

from bnaf.cli.machine import others_running, share_cores


@pytest.fixture
def loads(tmp_path):
    def write(running):
        (tmp_path / "loadavg").write_text(f"2.01 1.10 0.95 {running}/512 4242\n")
        return tmp_path / "loadavg"

    return write


def test_threads_wait_passively_where_others_run(loads):
    environment = {}
    share_cores(environment, loads(3))
    assert environment == {"OMP_WAIT_POLICY": "passive"}


def test_threads_wait_as_ever_on_an_idle_machine(loads):
    environment = {}
    share_cores(environment, loads(1))
    assert environment == {}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_says_of_waiting_stays(loads, name):
    environment = {name: "as I say"}
    share_cores(environment, loads(3))
    assert environment == {name: "as I say"}


@pytest.mark.parametrize("content", ["", "1 2 3", "1 2 3 many/few 5"])
def test_a_system_that_does_not_tell_counts_as_idle(tmp_path, content):
    (tmp_path / "loadavg").write_text(content)
    assert others_running(tmp_path / "loadavg") == 0
    assert others_running(tmp_path / "nothing") == 0
