"""Python programs that `redlock_run` runs. Each says when it is ready for signals."""

# Says which signal came. A signal before the wait is kept.
_WAITING = """
import os, signal, sys, time
awaited = {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
signal.alarm(60)
print("ready", flush=True)
while True:
    number = signal.sigwait(awaited)
    os.write(1, b"got %s\\n" % signal.Signals(number).name.encode())
    """
PATIENT = _WAITING + "sys.exit(7)"
STUBBORN = _WAITING + "pass"
SLOW_TO_END = _WAITING + "signal.sigwait(awaited); os.write(1, b'done\\n'); os._exit(0)"
UNTIL_SIGUSR1 = _WAITING + "number == signal.SIGUSR1 and sys.exit(0)"
UNTIL_SIGCONT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
signal.alarm(60)
print("ready", flush=True)
signal.sigwait({signal.SIGCONT})
"""
