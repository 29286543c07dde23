"""The next item of an iterator, made in a thread of its own while something else waits for the disk."""

import signal
from _thread import start_new_thread
from queue import SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawq.cli.batch import Chunk


class Ahead:
    """An iterator over `items`, at most one ahead: only one of the two threads works on them at a time.

    Whoever stops early leaves the thread where it is, perhaps in a read without end, until the process ends.
    """

    __slots__ = ("_asked", "_is_asked", "_items", "_made")

    def __init__(self, items: "Iterator[Chunk]") -> None:
        self._items = items
        self._is_asked = False
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._made: SimpleQueue[Chunk | BaseException] = SimpleQueue()
        start_new_thread(self._make, ())

    def ask(self) -> None:
        """Have the next one made, unless it is being made already. Does not wait."""
        if not self._is_asked:
            self._is_asked = True
            self._asked.put(None)

    def __iter__(self) -> "Iterator[Chunk]":
        return self

    def __next__(self) -> "Chunk":
        self.ask()
        made = self._made.get()
        self._is_asked = False
        if isinstance(made, BaseException):
            raise made
        return made

    def _make(self) -> None:
        # A signal wakes the thread that it finds: the other one is to hear of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._asked.get()
            try:
                self._made.put(next(self._items))
            except BaseException as error:  # the end among them
                self._made.put(error)
                return
