"""Ports of the loopback for servers that are started again on the same one."""
import socket

_held = []


def hold_port():
    """A port that is this process's for as long as it lives.

    A socket that is bound to it and never listens keeps it: servers can listen on it, time and again, and
    between two of them no connection and no other server of this machine gets it.
    """
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    _held.append(one)
    return one.getsockname()[1]
