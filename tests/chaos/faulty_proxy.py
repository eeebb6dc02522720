"""A TCP proxy that cuts, delays and stalls connections at random."""
import random
import socket
import struct
import threading
import time

PIECE = 16 << 10


class FaultyProxy:
    """Forwards to `target`, "host:port", which may be down. Every connection gets a fate when it is
    made: `none`, `cut` (reset after some bytes or seconds), `delay` (pauses between pieces), or
    `stall` (half open: nothing is forwarded any more, then it is reset)."""

    FATES = ("none", "none", "cut", "cut", "delay", "stall")

    def __init__(self, target, seed):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.fates = dict.fromkeys(self.FATES, 0)
        self.calm = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self.lock:
                fate = "none" if self.calm else self.random.choice(self.FATES)
                self.fates[fate] += 1
                plan = _Plan(fate, self.random.randrange(1 << 20),
                             time.monotonic() + self.random.uniform(0.05, 6))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink, plan),
                                 daemon=True).start()

    def _forward(self, source, sink, plan):
        try:
            while data := source.recv(PIECE):
                if not self.calm and not plan.let_through(len(data)):
                    _reset(source)
                    _reset(sink)
                    return
                sink.sendall(data)
        except OSError:
            pass
        for connection in (source, sink):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def be_calm(self):
        """No more faults; connections that have a fate meet it."""
        self.calm = True

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


class _Plan:
    def __init__(self, fate, most_bytes, until):
        self.fate, self.left, self.until = fate, most_bytes, until

    def let_through(self, size):
        """False: the connection is to be reset."""
        self.left -= size
        over = self.left < 0 or time.monotonic() > self.until
        if self.fate == "delay":
            time.sleep(0.02)
        if self.fate == "stall" and over:
            time.sleep(2)
            return False
        return not (self.fate == "cut" and over)


def _reset(connection):
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    except OSError:
        pass
