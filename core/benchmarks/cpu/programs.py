"""Runs the measuring programs: each prints one JSON object."""
import json
import subprocess
from pathlib import Path


class ProgramError(Exception):
    pass


def run(bin_folder, name, flags):
    """flags: {name: value}; returns the object that the program printed."""
    command = [str(Path(bin_folder) / name)]
    for flag, value in flags.items():
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        command += [f"--{flag}", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Peer:
    """A peer that was started once for a layer and answers one line for one line."""

    def __init__(self, python, program, layer, threads):
        self._process = subprocess.Popen(
            [str(python), str(program), "--layer", str(layer), "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.description = self._read()

    def run(self, **case):
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise ProgramError(f"the peer ended: {errors.strip()[-2000:]}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
