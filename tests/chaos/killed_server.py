"""The server under test: killed, drained and started again on the same folder and ports."""
import random
import threading
import time

from support.ports import hold_port
from support.processes import Server


class KilledServer:
    FLAGS = ("--device", "cpu", "--workers", "2", "--max-attempts", "1000", "--drain-grace", "2s",
             "--fetch-grace", "1s", "--checkpoint-period", "500ms")

    def __init__(self, folder, seed, *flags):
        self.folder, self.random = folder, random.Random(seed)
        self.address = f"127.0.0.1:{hold_port()}"
        self.flags = ("--listen", self.address, "--metrics-listen", f"127.0.0.1:{hold_port()}",
                      "--state-dir", str(folder / "state"), *self.FLAGS, *flags)
        self.kills = self.drains = 0
        self.longest_start = 0.0
        self.stopping = threading.Event()
        self.server = None
        self.error = None
        self.start()

    def start(self):
        begin = time.monotonic()
        self.server = Server(self.folder, *self.flags, defaults=False)
        self.longest_start = max(self.longest_start, time.monotonic() - begin)

    def harass(self, least, most):
        """Ends it every `least` to `most` seconds until calm() is called: mostly by SIGKILL, one
        time in ten by SIGTERM, as a rolling restart does."""
        def run():
            try:
                while not self.stopping.wait(self.random.uniform(least, most)):
                    self.end_once()
            except Exception as error:  # of a server that does not start, or crashes by itself
                self.error = error
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def end_once(self):
        code = self.server.process.poll()
        assert code is None, f"the server ended by itself with {code}:\n{self.server.log()[-4000:]}"
        if self.random.random() < 0.1:
            assert self.server.stop() == 0, self.server.log()[-4000:]
            self.drains += 1
        else:
            self.server.close()
            self.kills += 1
        time.sleep(self.random.uniform(0, 0.3))
        self.start()

    def calm(self):
        self.stopping.set()
        self.thread.join()
        if self.error:
            raise self.error

    def close(self):
        self.stopping.set()
        self.server.close()
