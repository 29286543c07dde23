"""What ends the loop's sleep: a producer's datagram, an agent's end, a signal, the next due time."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import stat
import time
from collections.abc import Callable
from types import FrameType

from clawq.paths import Home
from clawq.supervisor.state import mono_ms

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Wakeups:
    """The descriptors that a sleeping supervisor listens to.

    Signal handlers only take notes; the loop acts on them in its own time. Where the socket's path is too
    long, or something else stands in its place, producers cannot be heard and the loop looks each second.
    """

    def __init__(self, home: Home) -> None:
        self.signals: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._watches: dict[int, int] = {}
        self._socket = self._bind(home)
        self._socket_path = home.sock
        self._pipe, self._pipe_in = os.pipe()
        for descriptor in (self._pipe, self._pipe_in):
            os.set_blocking(descriptor, False)
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._before = {number: signal.signal(number, self._note) for number in (*HANDLED, signal.SIGCHLD)}
        self._wakeup_before = signal.set_wakeup_fd(self._pipe_in, warn_on_full_buffer=False)

    def _bind(self, home: Home) -> socket.socket | None:
        if not home.socket_fits:
            return None
        try:
            if not stat.S_ISSOCK(os.lstat(home.sock).st_mode):
                return None
            os.unlink(home.sock)  # we hold the lock, so it is a dead supervisor's
        except FileNotFoundError:
            pass
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        umask = os.umask(0o177)
        try:
            receiver.bind(home.sock)
            self._bound = os.lstat(home.sock)
        except OSError:
            receiver.close()
            return None
        finally:
            os.umask(umask)
        self._selector.register(receiver, selectors.EVENT_READ)
        return receiver

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in HANDLED:
            self.signals.append(number)

    def watch(self, token: int, descriptor: int) -> None:
        """Wake up when `descriptor` (an exit watch) becomes readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._watches[token] = descriptor

    def has_fired(self, token: int) -> bool:
        """Is what is watched readable by now?"""
        descriptor = self._watches.get(token)
        return descriptor is not None and any(key.fd == descriptor for key, _ in self._selector.select(0))

    def unwatch(self, token: int) -> None:
        descriptor = self._watches.pop(token, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def sleep(self, seconds: float) -> None:
        """Until something happens, at most this long. Notes are drained; what they mean is looked up anew."""
        ready = {key.fd for key, _ in self._selector.select(max(0.0, seconds))}
        if self._pipe in ready:
            os.read(self._pipe, 4096)  # what is left ends the next sleep at once
        if self._socket is not None and self._socket.fileno() in ready:
            self._empty(self._socket)

    def lock_wait(self, patience_ms: Callable[[], int]) -> Callable[[int], bool]:
        """A busy handler for SQLite that ends when a signal came or the patience of the moment is over.

        In SQLite's own wait no signal would be heard for ten seconds.
        """
        since = 0

        def try_again(tries: int) -> bool:
            nonlocal since
            mono = mono_ms()
            if tries == 0:
                since = mono
            if self.signals or mono - since >= patience_ms():
                return False
            time.sleep(min(0.001 * (tries + 1), 0.05))
            return True

        return try_again

    @staticmethod
    def _empty(receiver: socket.socket) -> None:
        try:
            while True:
                receiver.recv(16)
        except BlockingIOError:
            pass

    def close(self) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for token in list(self._watches):
            self.unwatch(token)
        if self._socket is not None:
            self._socket.close()
            try:
                if os.path.samestat(os.lstat(self._socket_path), self._bound):
                    os.unlink(self._socket_path)
            except OSError:
                pass
        self._selector.close()
        os.close(self._pipe)
        os.close(self._pipe_in)
