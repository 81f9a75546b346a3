"""The deadline of a job, enforced from inside its process, at the end by the kernel.

At the deadline SIGALRM raises JobTimeout in the handler, and nowhere else. A second before the kill
a signal makes faulthandler write the stack, also of C code that holds the GIL. At the deadline plus
grace the kernel kills the process: with the GIL held, every signal blocked, or the process stopped.

POSIX timers (timer_create(2)) on CLOCK_BOOTTIME, by ctypes: setitimer has no SIGKILL and stops in
suspend. Timers are not inherited by fork: make them in the child. Arming and disarming all three takes
7 us, and three times that where forty children compete for the processors' caches; so jobs that follow
each other at once share them.
"""

import ctypes
import faulthandler
import signal
import sys
import time
from _signal import SIG_IGN, getsignal  # type: ignore[import-not-found]  # signal's own make enums: ten times the time
from _signal import signal as set_handler
from functools import partial
from types import FrameType

from supervisor.errors import JobTimeout
from supervisor.worker import boottime

STACK_SIGNAL = signal.SIGRTMAX  # a real-time signal: SIGUSR1 and SIGUSR2 are left to handlers
_STACK_BEFORE_KILL = 1.0  # seconds
_LATE = 0.05  # seconds by which a timeout may be late in a drain: its jobs arm the timers so often, not each its own
_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _SigEvent(ctypes.Structure):  # sigevent(7), padded to its 64 bytes
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _TimerSpec(ctypes.Structure):  # itimerspec: interval, then value
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


_settime = _libc.timer_settime  # to look a function up takes as long as to call it
_NEVER = ctypes.byref(_TimerSpec(0, 0, 0, 0))


class _Timer:
    """Sends `signo` to this process at a moment on CLOCK_BOOTTIME."""

    def __init__(self, signo: int) -> None:
        self._id = ctypes.c_void_p()
        event = _SigEvent(None, signo, _SIGEV_SIGNAL, b"")
        if _libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._id)):
            raise OSError(ctypes.get_errno(), "timer_create")
        self._spec = _TimerSpec(0, 0, 0, 0)
        self._set = partial(_settime, self._id, _TIMER_ABSTIME, ctypes.byref(self._spec), None)
        self.disarm = partial(_settime, self._id, _TIMER_ABSTIME, _NEVER, None)

    def arm(self, moment: float) -> None:
        """At `moment`, or at once where it has passed."""
        self._spec.seconds, self._spec.nanoseconds = int(moment), int(moment % 1 * 1e9)
        if self._set():
            raise OSError(ctypes.get_errno(), "timer_settime")


class Deadline:
    """Arms and disarms a job's three timers. `in_handler` says where the alarm may raise."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.in_handler = False
        self.fired = False  # JobTimeout was raised in this job's handler, whatever that made of it
        self._timeout, self._stack, self._kill = _Timer(signal.SIGALRM), _Timer(STACK_SIGNAL), _Timer(signal.SIGKILL)
        self._due = self._armed = 0.0
        self.stand()

    def stand(self) -> None:
        """(Re)establish the signal that writes the stack. SIG_IGN in Python's own table marks that it is."""
        if getsignal(STACK_SIGNAL) != SIG_IGN:
            faulthandler.unregister(STACK_SIGNAL)
            set_handler(STACK_SIGNAL, SIG_IGN)
            faulthandler.register(STACK_SIGNAL, file=sys.stderr, all_threads=True)
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that a job left behind

    def arm(self, deadline: float) -> None:
        """For a job. Where the last job's timers are armed still and near enough, they serve this one too."""
        self.fired = False
        self._due = deadline
        if deadline <= self._armed <= deadline + _LATE and boottime() < self._armed:
            return
        self._armed = armed = deadline + _LATE if self._armed else deadline
        self._kill.arm(armed + self.grace)
        self._stack.arm(armed + self.grace - _STACK_BEFORE_KILL)
        self._timeout.arm(armed)

    def disarm(self) -> None:
        if not self._armed:
            return
        self._armed = 0.0
        if self._timeout.disarm() or self._stack.disarm() or self._kill.disarm():
            raise OSError(ctypes.get_errno(), "timer_settime")

    def on_alarm(self, signo: int, frame: FrameType | None) -> None:
        """The handler of SIGALRM: raises once, while the job's handler runs; not for an alarm of the handler's own."""
        if self.in_handler and boottime() >= self._due:
            self.in_handler = False
            self.fired = True
            raise JobTimeout


class NoDeadline(Deadline):
    """Enforces nothing: for a job that a test runs in its own process."""

    def __init__(self) -> None:
        self.grace = 0.0
        self.in_handler = self.fired = False

    def stand(self) -> None: ...

    def arm(self, deadline: float) -> None: ...

    def disarm(self) -> None: ...
