"""A TCP proxy that breaks connections."""
import socket
import struct
import threading


class CuttingProxy:
    """Forwards to `target`. When `cut_at` bytes have come from clients, over all connections, the
    connection that brought the last one is reset: the bytes up to there are delivered, no more.
    That happens once for every entry of `cuts` (ascending); then it only forwards."""

    def __init__(self, target, cuts):
        host, port = target.rsplit(":", 1)
        self.target, self.cuts, self.done = (host, int(port)), list(cuts), []
        self.received = 0
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
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            threading.Thread(target=self._forward, args=(client, server, pair), daemon=True).start()
            threading.Thread(target=self._back, args=(server, client, pair), daemon=True).start()

    def _forward(self, source, sink, pair):
        while data := self._receive(source):
            cut = False
            with self.lock:
                if self.cuts and self.received + len(data) >= self.cuts[0]:
                    data = data[:self.cuts[0] - self.received]
                    self.done.append(self.cuts.pop(0))
                    cut = True
                self.received += len(data)
            if not self._send(sink, data):
                break
            if cut:
                # What was forwarded must reach the server: only the client sees a reset.
                self._reset(source)
                break
        self._close(pair)

    def _back(self, source, sink, pair):
        while data := self._receive(source):
            if not self._send(sink, data):
                break
        self._close(pair)

    @staticmethod
    def _receive(source):
        try:
            return source.recv(65536)
        except OSError:
            return b""

    @staticmethod
    def _send(sink, data):
        try:
            sink.sendall(data)
            return True
        except OSError:
            return False

    @staticmethod
    def _reset(connection):
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass

    @staticmethod
    def _close(pair):
        for connection in pair:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def close(self):
        # shutdown wakes the accepting thread, which close alone does not.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
