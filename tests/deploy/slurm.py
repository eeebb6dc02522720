"""A Slurm of this machine alone: munged, slurmctld and a slurmd for each of its nodes, as processes of the
caller, on free ports of the loopback, with everything in one folder. From Debian's slurm-wlm.

    slurm.py [--nodes N] [--cpus N] COMMAND ...    runs COMMAND, which may use sbatch, srun and squeue
"""
import argparse
import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))
from support.ports import hold_port  # noqa: E402
from support.processes import wait_until  # noqa: E402

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue")
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
CONFIGURATION = """\
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait=5
"""


def why_not():
    """Why there can be no Slurm here; "": there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)" if missing else ""


class Slurm:
    """A context manager. `environment` is that of commands which use it."""

    def __init__(self, folder, nodes=1, cpus=1):
        self._folder, self._stack = Path(folder), contextlib.ExitStack()
        self._configuration = self._folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self._configuration), "PATH": PATH}
        lines = CONFIGURATION.format(user=getpass.getuser(), port=hold_port(), folder=self._folder)
        self._nodes = [f"node{index}" for index in range(1, nodes + 1)]
        for name in self._nodes:
            (self._folder / f"spool-{name}").mkdir()
            lines += f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 " \
                     f"Port={hold_port()} CPUs={cpus} State=UNKNOWN\n"
        lines += f"PartitionName=all Nodes={','.join(self._nodes)} Default=YES State=UP MaxTime=INFINITE\n"
        (self._folder / "state").mkdir()
        self._configuration.write_text(lines)

    def __enter__(self):
        key = self._folder / "munge.key"
        with contextlib.ExitStack() as stack:
            self._run("mungekey", "--create", f"--keyfile={key}")
            self._start(stack, "munged", "--foreground", "--force", f"--key-file={key}",
                        *(f"--{name}={self._folder}/munge.{name.split('-')[0]}"
                          for name in ("socket", "pid-file", "seed-file", "log-file")))
            wait_until((self._folder / "munge.socket").exists, "munged's socket")
            self._start(stack, "slurmctld", "-D", "-c", "-f", self._configuration)
            for name in self._nodes:
                self._start(stack, "slurmd", "-D", "-c", "-N", name, "-f", self._configuration)
            wait_until(self._idle, "idle nodes of Slurm")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        subprocess.run(["scancel", "--full", f"--user={getpass.getuser()}"], env=self.environment)
        wait_until(lambda: not self._run("squeue", "--noheader"), "the end of the jobs")
        self._stack.close()

    def log(self):
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def _run(self, *command):
        done = subprocess.run(list(map(str, command)), env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.log()}"
        return done.stdout

    def _idle(self):
        done = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%t"], env=self.environment,
                              capture_output=True, text=True)
        return done.stdout.split() == ["idle"] * len(self._nodes)

    def _start(self, stack, *command):
        number = len(list(self._folder.glob("*.log")))
        log = stack.enter_context(open(self._folder / f"{number}-{command[0]}.log", "wb"))
        daemon = subprocess.Popen(list(map(str, command)), env=self.environment, stdout=log, stderr=log)
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=1, help="of a node, as Slurm counts them")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if why_not():
        print(f"skipped: {why_not()}")
        return 77
    with tempfile.TemporaryDirectory(prefix="sparsefw-slurm-") as folder, \
            Slurm(folder, options.nodes, options.cpus) as slurm:
        return subprocess.run(options.command, env=slurm.environment).returncode


if __name__ == "__main__":
    sys.exit(main())
