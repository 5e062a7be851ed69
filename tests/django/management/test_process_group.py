"""A command in its own process group."""

import signal
import subprocess
import sys

import pytest

RUN = """
import signal, sys, threading
from django_redlock.management.process_group import ProcessGroup
threading.Thread(target=threading.Event().wait, args=[60], daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # in this thread only: the other one gets the signal
sys.exit(ProcessGroup([sys.executable, "-c", sys.argv[1]], 5).run({}))
"""
COMMAND = """
import signal, sys
signal.alarm(60)
print("ready", flush=True)
sys.exit(7 if signal.sigwait({signal.SIGUSR1}) else 0)  # blocked, as in the process that has started this one
"""


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", RUN, COMMAND], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_signal_that_does_not_interrupt_the_wait(process):
    """A signal that does not interrupt the wait for the command, as one just before the wait, is forwarded at once."""
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 7
