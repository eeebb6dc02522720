"""A client that wants the server's memory. A program of its own, so that it shares no interpreter
with the clients that it is to disturb:

    hostile_client.py ADDRESS MODE CONNECTIONS SECONDS [--tls] [--addresses] [--tensor NAME]

Prints how many bytes it has sent, connections it has lost and calls that were ended. Lost
connections are made again, ended calls begun again."""
import argparse
import json
import select
import socket
import ssl
import struct
import time

MIB = 1 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
ASK = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# A protobuf message whose first field is a string of the bytes that follow, 2 MiB - 1 with these.
NAME = b"\x0a\xfb\xff\x7f"
INFO = "/sparsefw.v1.PruneService/GetServerInfo"
WRITE = "/sparsefw.v1.TensorService/WriteTensor"
READ = "/sparsefw.v1.TensorService/ReadTensor"
SUMS = "/sparsefw.v1.TensorService/SumGrams"

# path, streams of a connection, bytes announced, bytes sent, bytes of a frame
MODES = {
    "unary": (INFO, 100, 2 * MIB, 2 * MIB - 1, 16384),
    "giant": (INFO, 1, 0xfffffff0, 0xfffffff0, 16384),
    "giant-stream": (WRITE, 4, 0xfffffff0, 0xfffffff0, 16384),
    "stream": (WRITE, 100, 2 * MIB, 2 * MIB - 1, 16384),
    "tiny-frames": (WRITE, 60, 2 * MIB, 2 * MIB - 1, 1),
    "health": ("/grpc.health.v1.Health/Check", 100, 0xfffffff0, 0xfffffff0, 16384),
    "reflection": ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 100, 2 * MIB,
                   2 * MIB - 1, 16384),
    # Whole messages, one after the other: names of services that nobody has.
    "health-watch": ("/grpc.health.v1.Health/Watch", 1, 2 * MIB - 1, 2 * MIB - 1, 16384),
    # The same as names of uploads; the stream stays open.
    "names": (WRITE, 100, 2 * MIB - 1, 2 * MIB - 1, 16384),
    # No faster than is allowed for the empty messages on a stream beside them.
    "hide": (WRITE, 20, 2 * MIB, 2 * MIB - 1, 1000),
    "unknown": ("/no.such.Service/Method", 100, 0xfffffff0, 0xfffffff0, 16384),
    "reads": (READ, 100, None, None, 16384),
    "sums": (SUMS, 20, None, None, 16384),
    "calls": (WRITE, 200, 2 * MIB, 0, 16384),
}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal without indexing: nothing to remember."""
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class Connection:
    def __init__(self, options, source):
        self.path, self.streams, self.announced, self.size, self.piece = MODES[options.mode]
        self.message = b""
        self.first = NAME if options.mode in ("health-watch", "names") else b""
        self.cover = None  # the stream of empty messages
        if options.mode in ("reads", "sums"):
            name = options.tensor.encode()
            self.message = b"\x0a" + bytes([len(name)]) + name
            self.announced = self.size = len(self.message)
        host, port = options.address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(600)  # not a limit of the test
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        if options.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket)
        self.socket.setblocking(False)
        self.window, self.initial, self.windows = 65535, 65535, {}
        self.next, self.sent, self.ended = 1, {}, 0
        # Nothing of a response may come where the window is 0.
        setting = struct.pack(">HI", 4, 0) if self.message else b""
        self.out, self.input, self.bytes = PREFACE + frame(SETTINGS, 0, 0, setting), b"", 0
        self.block = bytes(self.piece)
        for _ in range(self.streams):
            self.open()
        if options.mode == "hide":
            self.cover = self.headers(ASK)

    def headers(self, path):
        stream, self.next = self.next, self.next + 2
        fields = ((":method", "POST"), (":scheme", "http"), (":path", path),
                  (":authority", "x"), ("te", "trailers"), ("content-type", "application/grpc"))
        self.out += frame(HEADERS, 4, stream, b"".join(header(*field) for field in fields))
        self.windows[stream] = self.initial
        return stream

    def open(self):
        self.sent[self.headers(self.path)] = -5

    def fill(self):
        """Frames for what the windows allow."""
        for stream in list(self.sent):
            while self.sent[stream] < self.size and len(self.out) < MIB:
                if self.cover and not self.hidden():
                    return
                begin = self.sent[stream]
                if begin < 0:
                    data = b"\0" + struct.pack(">I", self.announced)
                elif self.message:
                    data = self.message
                elif begin == 0 and self.first:
                    data = self.first
                else:
                    data = self.block[:self.size - begin]
                room = min(self.windows[stream], self.window)
                if room < len(data):
                    break
                if self.piece == 1 and begin >= 0:
                    count = min(room, self.size - begin, 1 << 15)
                    self.windows[stream] -= count
                    self.window -= count
                    self.sent[stream] += count
                    self.out += frame(DATA, 0, stream, data) * count
                    continue
                self.windows[stream] -= len(data)
                self.window -= len(data)
                self.sent[stream] += len(data)
                self.out += frame(DATA, int(bool(self.message) and begin >= 0), stream, data)

            if self.first and self.sent[stream] == self.size and len(self.sent) < 250:
                self.open()

    def hidden(self):
        """Messages for which as much is allowed as the next piece takes. False: not now."""
        count = 2 * self.piece // 50
        if len(self.out) > MIB // 16 or min(self.windows[self.cover], self.window) < 5 * count:
            return False
        self.windows[self.cover] -= 5 * count
        self.window -= 5 * count
        self.out += frame(DATA, 0, self.cover, bytes(5)) * count
        return True

    def turn(self):
        """Raises OSError where the server has closed the connection."""
        self.fill()
        try:
            if self.out:
                count = self.socket.send(self.out)
                self.out, self.bytes = self.out[count:], self.bytes + count
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        try:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError
            self.input += data
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        while len(self.input) >= 9:
            length = int.from_bytes(self.input[:3], "big")
            if len(self.input) < 9 + length:
                return
            kind, flags = self.input[3], self.input[4]
            stream = int.from_bytes(self.input[5:9], "big")
            self.take(kind, flags, stream, self.input[9:9 + length])
            self.input = self.input[9 + length:]

    def take(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, 0) + increment
            else:
                self.window += increment
        elif kind == DATA and self.cover and payload:  # the answers are read
            for window in (0, stream):
                self.out += frame(WINDOW_UPDATE, 0, window, struct.pack(">I", len(payload)))
        elif kind == SETTINGS and not flags & 1:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == 4:
                    for open_stream in self.windows:
                        self.windows[open_stream] += value - self.initial
                    self.initial = value
            self.out += frame(SETTINGS, 1, 0)
        elif kind == PING and not flags & 1:
            self.out += frame(PING, 1, 0, payload)
        elif (kind == RST_STREAM or kind == HEADERS and flags & 1) and self.sent.pop(stream, None):
            self.ended += 1
            if kind != RST_STREAM:
                self.out += frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
            self.open()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--addresses", action="store_true", help="one of its own for each")
    parser.add_argument("--tensor", default="")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    open_, total, lost, ended = {}, 0, 0, 0
    while time.monotonic() < end:
        for number in range(options.connections):
            try:
                if number not in open_:
                    source = f"127.0.1.{number + 1}" if options.addresses else None
                    open_[number] = Connection(options, source)
                open_[number].turn()
            except OSError:
                lost += 1
                gone = open_.pop(number, None)
                if gone:
                    total, ended = total + gone.bytes, ended + gone.ended
                    gone.socket.close()
        if not any(one.out for one in open_.values()):
            select.select([one.socket for one in open_.values()], [], [], 0.05)
    total += sum(one.bytes for one in open_.values())
    ended += sum(one.ended for one in open_.values())
    print(json.dumps({"bytes": total, "lost": lost, "ended": ended}))


if __name__ == "__main__":
    main()
