"""Seconds of steps: by the clock of the process, and by a GPU's events, which come later than it goes on."""

from __future__ import annotations

import time

import pytest
import torch

from hapdsl.run.timing import Stopwatch


class Gpu:
    """A stream that reaches what was recorded on it when it is waited for, or let run; milliseconds of each event by hand."""

    def __init__(self, times):
        self.times, self.reached = iter(times), 0.0

    def event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu):
        self.gpu, self.at = gpu, None

    def record(self):
        self.at = next(self.gpu.times)

    def query(self):
        return self.gpu.reached >= self.at

    def synchronize(self):
        self.gpu.reached = max(self.gpu.reached, self.at)

    def elapsed_time(self, later):
        assert self.query() and later.query(), "not there yet"
        return later.at - self.at


def test_steps_on_a_gpu_take_what_its_events_say(monkeypatch):
    """Nobody waits for them before they are asked for; those that are there are read on the way."""
    gpu = Gpu([0.0, 30.0, 40.0, 60.0, 100.0, 101.0])
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    watch = Stopwatch(torch.device("cuda", 0))
    for step in range(3):
        with watch:
            gpu.reached = 35.0 if step == 1 else gpu.reached
    assert gpu.reached == 35.0
    assert watch.seconds == pytest.approx([0.03, 0.02, 0.001]) and gpu.reached == 101.0


def test_steps_on_a_processor_take_what_the_clock_says(monkeypatch):
    times = iter([1.0, 1.5, 2.0, 4.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        with watch:
            pass
    assert watch.seconds == [0.5, 2.0]
