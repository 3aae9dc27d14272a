"""Time that passes more slowly while more is to be done than there are processors for.

A deadline in seconds judges the machine as well as the gateway: a mebibyte in blocks of 512 bytes is two thousand round
trips, and each of them waits for its turn where other programs run. A machine that stands still, as a virtual one that
is moved, answers nobody. A wake that was forgotten never comes, so a deadline in this time still finds it."""

import asyncio
import os
import threading
import time

INTERVAL = 0.25
"""Seconds between two looks at how many tasks can run."""
STEP = 4 * INTERVAL
"""What passes at most between two looks: where they are further apart, this process did not run either."""


class Clock(threading.Thread):
    """Seconds since its start, each divided by the tasks that can run for each processor, if they are more than one."""

    def __init__(self):
        super().__init__(daemon=True)
        self.passed = 0.0
        self.start()

    def run(self):
        processors, last = os.cpu_count() or 1, time.monotonic()
        while True:
            time.sleep(INTERVAL)
            now = time.monotonic()
            with open("/proc/loadavg") as file:
                running = int(file.read().split()[3].split("/")[0])
            # This thread is one of them.
            self.passed += min(now - last, STEP) / max(1.0, (running - 1) / processors)
            last = now


CLOCK = Clock()


def now() -> float:
    """Seconds of this time."""
    return CLOCK.passed


async def within(awaitable, seconds: float):
    """As `asyncio.wait_for`, in seconds of this time."""
    task, deadline = asyncio.ensure_future(awaitable), now() + seconds
    try:
        while not task.done():
            if now() >= deadline:
                raise TimeoutError
            await asyncio.wait({task}, timeout=max(INTERVAL, deadline - now()))
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def first_of(futures, seconds: float):
    """Those of the futures that are done, as soon as one is, or when the time is over."""
    deadline, done = now() + seconds, set()
    while not done and now() < deadline:
        done, _ = await asyncio.wait(futures, timeout=INTERVAL, return_when=asyncio.FIRST_COMPLETED)
    return done


async def rest(seconds: float):
    """As `asyncio.sleep`, in seconds of this time."""
    deadline = now() + seconds
    while (left := deadline - now()) > 0:
        await asyncio.sleep(min(left, INTERVAL))
