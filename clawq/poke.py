"""One datagram to wake the supervisor. It may be lost: the supervisor looks by itself each second."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawq.paths import Home


def poke(home: "Home", byte: bytes = b"p") -> None:
    """Send `byte` to the supervisor's socket, without waiting. Says nothing about anybody listening."""
    if not home.socket_fits:
        return
    # The C half of `socket`, which alone would cost `clawq enqueue` several milliseconds.
    import _socket

    try:
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    except OSError:
        return
    try:
        sender.setblocking(False)
        sender.sendto(byte, home.sock)
    except OSError:
        pass
    finally:
        sender.close()
