"""A TCP proxy that cuts, delays and stalls connections at random."""
import random
import time

from support.tcp_proxy import TcpProxy, reset_on_close


class FaultyProxy(TcpProxy):
    """Every connection gets a fate when it is made: `none`, `cut` (reset after some bytes or
    seconds), `delay` (pauses between pieces), or `stall` (half open: nothing is forwarded any more,
    then it is reset)."""

    FATES = ("none", "none", "cut", "cut", "delay", "stall")
    PIECE = 16 << 10

    def __init__(self, target, seed):
        self.random = random.Random(seed)
        self.fates = dict.fromkeys(self.FATES, 0)
        self.calm = False
        super().__init__(target)

    def _plan(self):
        with self.lock:
            fate = "none" if self.calm else self.random.choice(self.FATES)
            self.fates[fate] += 1
            return _Plan(fate, self.random.randrange(1 << 20),
                         time.monotonic() + self.random.uniform(0.05, 6))

    def _forward(self, source, sink, plan):
        while data := source.recv(self.PIECE):
            if not self.calm and not plan.let_through(len(data)):
                reset_on_close(source)
                reset_on_close(sink)
                return
            sink.sendall(data)

    _back = _forward

    def be_calm(self):
        """No more faults; connections that have a fate meet it."""
        self.calm = True


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
