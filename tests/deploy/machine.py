"""Runs commands of the documents as root of a machine that is thrown away: /etc, /usr and /var are copies
on write, network and processes are its own. `apt` and `systemctl` are ours (tests/deploy/bin).

    machine.py SCRIPT          runs SCRIPT with bash there; needs root
"""
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def enter(script):
    """In the new namespaces: mounts, loopback, the script."""
    scratch = Path("/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", scratch], check=True)
    for name in ("etc", "usr", "var"):
        upper, work = scratch / name, scratch / f"{name}-work"
        upper.mkdir()
        work.mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/{name},upperdir={upper},workdir={work}", f"/{name}"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    # Scripts of packages ask for this folder before they call systemctl.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    Path("/run/systemd/system").mkdir(parents=True)
    with socket.socket() as any_socket:  # up: SIOCSIFFLAGS with IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
    # Programs of the package come first in /usr/bin; ours stand for the package manager and systemd.
    os.environ["PATH"] = f"{HERE / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
    os.execvp("bash", ["bash", script])


def command(script):
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", sys.executable, __file__,
            "--inside", str(script)]


def why_not():
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c",
                           "mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w && mount -t overlay overlay -o "
                           "lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /etc"], capture_output=True, text=True)
    return f"no overlays of /etc here: {done.stderr.strip()}" if done.returncode else ""


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        enter(sys.argv[2])
    sys.exit(subprocess.run(command(sys.argv[1])).returncode)
