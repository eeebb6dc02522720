"""Does a bundle start where there is nothing but glibc? Runs it in a root of its own, inside a
private mount namespace, with an empty environment."""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpu_check import bundle, layout, libraries, service
from gpu_check.layout import Problem

INNER = "/bundle"
# After this nothing of the system is in sight but its glibc, /proc and a few devices.
ENTER = """set -e
root=$1; shift
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
for device in null zero urandom random; do mount --bind "/dev/$device" "$root/dev/$device"; done
exec chroot "$root" "$@"
"""


class HiddenPlace(service.Place):
    """The unpacked bundle as /bundle of a root that holds glibc besides."""

    def __init__(self, archive):
        super().__init__(Path("."), {"PATH": os.environ.get("PATH", os.defpath)})
        self._top = self.scratch / "root"
        self._top.mkdir(mode=0o755)
        unpacked = bundle.unpack(archive, self.scratch)
        self.root = self._top / INNER[1:]
        unpacked.rename(self.root)
        self.scratch = self._top / "tmp"
        self.scratch.mkdir()
        (self._top / "proc").mkdir()
        (self._top / "dev").mkdir()
        for device in ("null", "zero", "urandom", "random"):
            (self._top / "dev" / device).touch()
        self._add_glibc()

    def _add_glibc(self):
        """At the paths at which the loader looks for it."""
        for program in self.programs():
            for line in subprocess.run(["ldd", str(program)], capture_output=True, text=True,
                                       check=True).stdout.splitlines():
                match = re.search(r"(/\S+) \(0x", line)
                if not match or not libraries.GLIBC.match(Path(match[1]).name):
                    continue
                target = self._top / match[1].lstrip("/")
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(Path(match[1]).resolve(), target)

    def programs(self):
        """Of the bundle, tests included, as they are seen from outside."""
        found = [path for folder in ("bin", "tests")
                 for path in sorted((self.root / "build" / folder).glob("*"))]
        return [path for path in found if path.suffix != ".so"]

    def inside(self, path):
        return "/" + str(Path(path).relative_to(self._top))

    def enter(self, command):
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh",
                str(self._top), *command]

    def command(self, program, arguments):
        return self.enter([f"{INNER}/build/bin/{program}", *map(str, arguments)])


def _reason_not_possible(place):
    """None where a namespace can be made, else why not."""
    try:
        done = subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["--user",
                                                                          "--map-root-user"]),
                               "--mount", "true"], capture_output=True, text=True, timeout=30,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def _starts(place, program):
    """None, or how it failed. Any end but that of the loader will do: a benchmark without flags
    ends with a message."""
    flag = "--gtest_list_tests" if program.parent.name == "tests" else "--help"
    command = place.enter([place.inside(program), flag])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, errors="replace",
                          env={"PATH": os.environ.get("PATH", os.defpath)}, check=False)
    said = (done.stdout + done.stderr).strip()
    if done.returncode in (126, 127) or done.returncode < 0 or not said \
            or "error while loading shared libraries" in said:
        return f"{program.name}: status {done.returncode}: {said[-300:]}"
    return None


def _cuda_sentence(place):
    """What the engine's program says of CUDA here, where no driver is in sight."""
    process = place.start("sparsefw-bench-device", ["--device", "cuda"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    _, errors = process.communicate(timeout=60)
    if process.returncode == 0 or "cuda" not in errors.lower():
        raise Problem(f"--device cuda without a driver: status {process.returncode}: {errors}")
    return errors.strip().splitlines()[-1]


def check(archive, say):
    """Raises Problem with what does not start."""
    place = HiddenPlace(archive)
    try:
        why_not = _reason_not_possible(place)
        if why_not:
            raise Problem(f"the bundle was made and not started: no private mount namespace here "
                          f"({why_not})")
        say("hidden from the system's libraries, from CUDA and with an empty environment:")
        programs = place.programs()
        wrong = [line for line in (_starts(place, program) for program in programs) if line]
        if wrong:
            raise Problem("does not start: " + "; ".join(wrong))
        say(f"  all {len(programs)} programs start")
        say(f"  --device cuda is refused: {_cuda_sentence(place)}")
        line, _ = service.run(place, "cpu", 120, cases=service.CASES[:1], compare=False)
        say(f"  server and command line: {line}")
    except service.StepFailed as failure:
        raise Problem(str(failure)) from None
    finally:
        place.close()
    return layout.manifest(place.root)
