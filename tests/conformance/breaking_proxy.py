"""A TCP proxy that breaks the connection that brings a given byte, in a given way."""
import socket
import threading
import time

from support.processes import HANG
from support.tcp_proxy import TcpProxy, reset_on_close

# What clients send as part of a tensor where a byte is to be damaged.
MARKER = b"<this will be damaged on its way>"


class BreakingProxy(TcpProxy):
    """Breaks are armed one after the other. UP: bytes from clients, DOWN: bytes to them, counted over all
    connections since the break was armed. The bytes before the break arrive, and `before_break` gives their
receiver the time to take them: a moment, unless a test knows better. Kinds:

        reset    the client sees a reset, the server an end
        close    both see an end
        half     the server alone sees an end, and closes its side then
        stall    both ways nothing is forwarded any more for `seconds`, then the client sees a reset
        hold     likewise, until `release`
        damage   goes on, with one bit of MARKER the other way round
    """

    PIECE = 16 << 10

    def __init__(self, target):
        self.armed, self.done, self.count = [], [], {"up": 0, "down": 0}
        self.since = dict(self.count)
        self.most_per_connection = None
        self.clients = []
        self.before_break = lambda: time.sleep(0.1)
        self.held, self.released = threading.Event(), threading.Event()
        super().__init__(target)

    def arm(self, kind, after=0, way="up", seconds=1.0):
        with self.lock:
            if not self.armed:
                self.since = dict(self.count)
            self.armed.append((kind, after, way, seconds))

    def total(self, way="up"):
        with self.lock:
            return self.count[way]

    def retarget(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))

    def release(self):
        """The connections that are held are reset."""
        self.released.set()

    def cut(self):
        """Every connection is reset now, and there are no new ones."""
        self.close()
        with self.lock:
            clients = list(self.clients)
        for client in clients:
            reset_on_close(client)
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _plan(self):
        return _Connection()

    def _forward(self, source, sink, plan):
        with self.lock:
            self.clients.append(source)
        self._pump(source, sink, plan, "up")

    def _back(self, source, sink, plan):
        self._pump(source, sink, plan, "down")

    def _pump(self, source, sink, plan, way):
        client = source if way == "up" else sink
        while data := source.recv(self.PIECE):
            plan.wait()
            if plan.reset:
                return
            data, broken = self._look(data, way)
            plan.brought += len(data) if way == "up" else 0
            if way == "up" and self.most_per_connection and plan.brought > self.most_per_connection:
                broken = ("reset", 0)
            if broken and broken[0] in ("stall", "hold"):
                plan.stop()
            sink.sendall(data)
            if not broken:
                continue
            kind, seconds = broken
            self.before_break()
            if kind == "half":
                sink.shutdown(socket.SHUT_WR)
                while source.recv(self.PIECE):
                    pass
                return
            if kind == "stall":
                time.sleep(seconds)
            elif kind == "hold":
                self.held.set()
                self.released.wait(HANG)
            if kind != "close":
                reset_on_close(client)
                plan.end()
            return

    def _look(self, data, way):
        """What of the data is to be forwarded, and (kind, seconds) of a break after it."""
        with self.lock:
            kind, after, where, seconds = self.armed[0] if self.armed else (None, 0, None, 0)
            before = self.count[way] - self.since[way]
            self.count[way] += len(data)
            if where != way:
                return data, None
            if kind == "damage":
                at = data.find(MARKER)
                if at < 0:
                    return data, None
                self._met(kind)
                return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:], None
            if before + len(data) <= after:
                return data, None
            self._met(kind)
            self.count[way] -= len(data) - max(0, after - before)
            return data[:max(0, after - before)], (kind, seconds)

    def _met(self, kind):
        self.armed.pop(0)
        self.done.append(kind)
        self.since = dict(self.count)


class _Connection:
    """What both directions of a connection share."""

    def __init__(self):
        self.go, self.reset, self.brought = threading.Event(), False, 0
        self.go.set()

    def wait(self):
        self.go.wait()

    def stop(self):
        self.go.clear()

    def end(self):
        self.reset = True
        self.go.set()
