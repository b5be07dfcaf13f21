"""Servers under measurement: started on a free port in a folder of their own, ended by their process id.

Shared by bench.py, compat.py, expiry_stall.py and the big_* scripts. Speaks just enough RESP to ask questions.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def disk_folder():
    """A folder on a real disk: /tmp may be memory, the user's cache is not likely to be."""
    cache = os.environ.get("NEOKV_CACHE", os.path.expanduser("~/.cache/neokv"))
    folder = os.path.join(cache, "data")
    os.makedirs(folder, exist_ok=True)
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{folder} is in memory ({kind}): set NEOKV_CACHE to a folder on a disk")
    return folder


class Server:
    """A running neokv or redis-server; a context manager that leaves nothing behind. Or `nothing`, which answers every
    command with +OK and does nothing else (crates/load): `neokv` is then its path.

    `sync` (always, everysec, no) makes it durable: neokv on rocksdb, redis-server with an append-only file, with the data
    on a real disk. Without it both are in memory.
    """

    def __init__(self, kind, neokv=None, shards=1, cores=None, extra=(), sync=None):
        self.kind = kind
        self.neokv = neokv
        self.shards = shards
        self.cores = cores
        self.extra = list(extra)
        self.sync = sync
        self.process = None
        self.folder = None
        self.port = None

    def start(self):
        for _ in range(5):
            self.folder = tempfile.mkdtemp(prefix=f"neokv-{self.kind}-", dir=disk_folder() if self.sync else None)
            self.launch()
            if self.answers(60 if self.sync else 20):
                return self
            self._report()
            self.stop()
        raise SystemExit(f"{self.kind} does not start")

    def launch(self):
        """Starts the process on the folder and does not wait."""
        self.port = free_port()
        self.data = os.path.join(self.folder, "data")
        os.makedirs(self.data, exist_ok=True)
        if self.kind == "redis":
            command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                       "--enable-debug-command", "yes", "--dir", self.data]
            if self.sync:
                # A rewrite would be a second process whose cost nobody counts.
                command += ["--appendonly", "yes", "--appendfsync", self.sync, "--auto-aof-rewrite-percentage", "0"]
        elif self.kind == "nothing":
            command = [self.neokv, "--port", str(self.port)]
            if self.sync:
                command += ["--sync", os.path.join(self.data, "came")]
        else:
            command = [self.neokv, "server", "--redis-port", str(self.port), "--bind", "127.0.0.1",
                       "--enable-debug-command", "yes"]
            if self.shards is not None:
                command += ["--num-shards", str(self.shards)]
            if self.sync:
                command += ["--engine", "rocksdb", "--data-dir", self.data, "--log-sync", self.sync]
            else:
                command += ["--engine", "memory", "--save", "", "--dir", self.data]
        command += self.extra
        if self.cores is not None:
            command = ["taskset", "-c", self.cores] + command
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def answers(self, seconds):
        """Waits until it answers, and not with an error, as Redis does while it loads."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                with Client(self.port) as client:
                    if not isinstance(client.ask("PING"), Exception):
                        return True
            except OSError:
                pass
            time.sleep(0.005)
        return False

    def kill(self):
        """kill -9; the data stays, for `launch`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def disk_bytes(self, part=""):
        """What the data takes on the disk, or a part of it: `rows` or `log` of neokv."""
        total = 0
        for root, _, names in os.walk(os.path.join(self.data, part)):
            for name in names:
                try:
                    total += os.lstat(os.path.join(root, name)).st_blocks * 512
                except FileNotFoundError:
                    pass
        return total

    def written_bytes(self):
        """What the process has caused to be written to the disk so far (pages, not calls)."""
        with open(f"/proc/{self.process.pid}/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("write_bytes"))

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
        """User and system time of all threads so far, from the clock that the kernel has for every process."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

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
