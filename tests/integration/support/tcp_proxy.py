"""A TCP proxy on a port of its own; what happens to a connection is for a subclass."""
import socket
import struct
import threading

from support.processes import HANG


class TcpProxy:
    """Forwards to `target`, "host:port", which may be down. Every connection has two threads, which
    run `_forward` from the client to the server and `_back` the other way; each ends by closing
    both sockets."""

    PIECE = 64 << 10

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.lock = threading.Lock()
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
                server = socket.create_connection(self.target, timeout=HANG)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            plan = self._plan()
            for run, source, sink in ((self._forward, client, server), (self._back, server, client)):
                threading.Thread(target=self._run, args=(run, source, sink, plan),
                                 daemon=True).start()

    def _run(self, run, source, sink, plan):
        try:
            run(source, sink, plan)
        except OSError:
            pass
        for connection in (source, sink):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _plan(self):
        """Whatever `_forward` and `_back` of one connection share."""

    def _forward(self, source, sink, plan):
        while data := source.recv(self.PIECE):
            sink.sendall(data)

    def _back(self, source, sink, plan):
        while data := source.recv(self.PIECE):
            sink.sendall(data)

    def close(self):
        # shutdown wakes the accepting thread, which close alone does not.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


def reset_on_close(connection):
    """Its peer sees a reset instead of an end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
