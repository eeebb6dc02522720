"""A TCP proxy that breaks connections."""
from support.tcp_proxy import TcpProxy, reset_on_close


class CuttingProxy(TcpProxy):
    """When `cut_at` bytes have come from clients, over all connections, the connection that brought
    the last one is reset: the bytes up to there are delivered, no more. That happens once for every
    entry of `cuts` (ascending); then it only forwards."""

    def __init__(self, target, cuts):
        self.cuts, self.done, self.received = list(cuts), [], 0
        super().__init__(target)

    def _forward(self, source, sink, plan):
        while data := source.recv(self.PIECE):
            cut = False
            with self.lock:
                if self.cuts and self.received + len(data) >= self.cuts[0]:
                    data = data[:self.cuts[0] - self.received]
                    self.done.append(self.cuts.pop(0))
                    cut = True
                self.received += len(data)
            sink.sendall(data)
            if cut:
                # The bytes that were forwarded must reach the server: only the client is reset.
                reset_on_close(source)
                return
