"""Servers under measurement: started on a free port in a folder of their own, ended by their process id.

Shared by bench.py, compat.py and expiry_stall.py. Speaks just enough RESP to ask questions.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running neokv or redis-server; a context manager that leaves nothing behind."""

    def __init__(self, kind, neokv=None, shards=1, cores=None, extra=()):
        self.kind = kind
        self.neokv = neokv
        self.shards = shards
        self.cores = cores
        self.extra = list(extra)
        self.process = None
        self.folder = None
        self.port = None

    def start(self):
        for _ in range(5):
            self.port = free_port()
            self.folder = tempfile.mkdtemp(prefix=f"neokv-{self.kind}-")
            if self.kind == "redis":
                command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                           "--save", "", "--enable-debug-command", "yes", "--dir", self.folder]
            else:
                command = [self.neokv, "server", "--engine", "memory", "--redis-port", str(self.port),
                           "--bind", "127.0.0.1", "--num-shards", str(self.shards), "--save", "",
                           "--enable-debug-command", "yes", "--dir", self.folder]
            command += self.extra
            if self.cores is not None:
                command = ["taskset", "-c", self.cores] + command
            self.log = open(os.path.join(self.folder, "log"), "wb")
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                            stdout=self.log, stderr=subprocess.STDOUT)
            if self._answers():
                return self
            self._report()
            self.stop()
        raise SystemExit(f"{self.kind} does not start")

    def _answers(self):
        deadline = time.time() + 20
        while time.time() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                with Client(self.port) as client:
                    client.ask("PING")
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def _report(self):
        print(f"--- log of {self.kind} ---")
        print(self.tail())

    def tail(self, lines=20):
        with open(os.path.join(self.folder, "log"), errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self.process = None
        if self.folder:
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def cpu_seconds(self):
        """User and system time of all threads so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Client:
    """One connection; `ask` for one command, `pipeline` for many at once."""

    def __init__(self, port, timeout=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def ask(self, *args):
        self.socket.sendall(encode(args))
        return self.read()

    def pipeline(self, commands):
        self.socket.sendall(b"".join(encode(args) for args in commands))
        return [self.read() for _ in commands]

    def read(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        marker, rest = line[:1], line[1:-2]
        if marker in b"+:":
            return rest.decode() if marker == b"+" else int(rest)
        if marker == b"-":
            return Exception(rest.decode())
        if marker == b"$":
            if int(rest) < 0:
                return None
            return self.file.read(int(rest) + 2)[:-2]
        if marker == b"*":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        raise ValueError(f"not a RESP2 reply: {line!r}")


def encode(args):
    out = [b"*%d\r\n" % len(args)]
    for arg in args:
        if not isinstance(arg, bytes):
            arg = str(arg).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
    return b"".join(out)
