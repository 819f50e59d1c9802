"""A time limit that holds for work that does not end."""

import threading

import pytest

from outrider.cli.doctor.time_limit import BackgroundWork
from tests.rig.patience import PATIENCE


def test_results_and_errors() -> None:
    assert BackgroundWork(lambda: 7, PATIENCE).result() == 7
    with pytest.raises(ZeroDivisionError):
        BackgroundWork(lambda: 1 / 0, PATIENCE).result()


def test_the_limit_is_for_the_work_not_for_each_wait() -> None:
    now, ended = [0.0], threading.Event()
    try:
        work = BackgroundWork(ended.wait, 3600, clock=lambda: now[0])
        now[0] = 3600
        with pytest.raises(TimeoutError):
            work.result()
    finally:
        ended.set()


def test_what_hangs() -> None:
    ended = threading.Event()
    try:
        with pytest.raises(TimeoutError):
            BackgroundWork(ended.wait, 0.01).result()
    finally:
        ended.set()
