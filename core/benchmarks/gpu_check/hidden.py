"""Does a bundle start where there is nothing but glibc? Runs it in a root of its own, inside a
private mount namespace, with an empty environment."""
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from gpu_check import layout, libraries, service
from gpu_check.layout import Problem
from harness.process import ProgramError, run

# After this nothing of the system is in sight but its glibc, /proc, a few devices and the folder
# $2, which has the same name inside and outside.
ENTER = """set -e
root=$1; shared=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --bind "$shared" "$root$shared"
for device in null zero urandom random; do mount --bind "/dev/$device" "$root/dev/$device"; done
exec chroot "$root" "$@"
"""
NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount"]


class HiddenRoot:
    """A root with the unpacked bundle and the fixture in `shared`, and glibc."""

    def __init__(self, archive):
        self._scratch = tempfile.TemporaryDirectory(prefix="sparsefw-hidden-")
        top = Path(self._scratch.name)
        self.shared, self._root = top / "shared", top / "root"
        self.shared.mkdir()
        self.bundle = layout.unpack(archive, self.shared)
        self.fixture = self.shared / "fixture"
        shutil.copytree(layout.ROOT / layout.FIXTURE, self.fixture)
        for folder in ("proc", "dev", "tmp", str(self.shared)[1:]):
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        for device in ("null", "zero", "urandom", "random"):
            (self._root / "dev" / device).touch()
        for program in self.programs():
            self._add_glibc(program)

    def _add_glibc(self, program):
        """At the paths at which the loader looks for it."""
        for match in re.finditer(r"(/\S+) \(0x", run(["ldd", program], 60).out):
            if not libraries.GLIBC.match(Path(match[1]).name):
                continue
            target = self._root / match[1].lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(match[1]).resolve(), target)

    def programs(self):
        """The programs of the bundle, tests included."""
        return [path for folder in ("bin", "tests")
                for path in sorted((self.bundle / folder).glob("*"))
                if path.suffix != ".so"]

    def enter(self, *command):
        return ["env", "-i", f"PATH={os.environ.get('PATH', os.defpath)}", *NAMESPACE,
                "--propagation", "private", "sh", "-c", ENTER, "sh", str(self._root),
                str(self.shared), *map(str, command)]

    def wrappers(self):
        """A folder of programs that start those of the bundle inside."""
        folder = self.shared / "wrappers"
        folder.mkdir()
        for name in ("sparsefw-server", "sparsefw-cli"):
            words = " ".join(f"'{word}'" for word in self.enter(self.bundle / "bin" / name))
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder

    def close(self):
        self._scratch.cleanup()


def _starts(root, program):
    """None, or how it failed. Any end but that of the loader will do: a benchmark without flags
    ends with a message."""
    flag = "--gtest_list_tests" if program.parent.name == "tests" else "--help"
    done = run(root.enter(program, flag), 60, check=False)
    said = (done.out + done.err).strip()
    if done.code in (126, 127) or done.code < 0 or not said \
            or "error while loading shared libraries" in said:
        return f"{program.name}: status {done.code}: {said[-300:]}"
    return None


def _cuda_sentence(root):
    """What the engine's program says of CUDA here, where no driver is in sight."""
    done = run(root.enter(root.bundle / "bin/sparsefw-bench-device", "--device", "cuda"), 60,
               check=False)
    if done.code == 0 or "cuda" not in done.err.lower():
        raise Problem(f"--device cuda without a driver: status {done.code}: {done.err}")
    return done.err.strip().splitlines()[-1]


def check(archive, say):
    """Raises Problem with what does not start."""
    try:
        run([*NAMESPACE, "true"], 30)
    except ProgramError as error:
        raise Problem("the bundle was made and not started: no private mount namespace here "
                      f"({error})") from None
    root = HiddenRoot(archive)
    try:
        say("hidden from the system's libraries, from CUDA and with an empty environment:")
        programs = root.programs()
        wrong = [line for line in (_starts(root, program) for program in programs) if line]
        if wrong:
            raise Problem("does not start: " + "; ".join(wrong))
        say(f"  all {len(programs)} programs start")
        say(f"  --device cuda is refused: {_cuda_sentence(root)}")

        def item(name, ok, detail="", **_):
            if not ok:
                raise Problem(f"{name}: {detail}")
            say(f"  {name}: {detail}")
        service.run(root.wrappers(), root.fixture, "cpu", 120, item,
                    cases=service.CASES[:1], compare=False, shared=root.shared)
    finally:
        root.close()
