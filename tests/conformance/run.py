#!/usr/bin/python3
"""Usage: tests/conformance/run.py BUILD-FOLDER cpp|python|python_aio|go [PYTEST-ARGUMENT ...]

Runs the suite against one client. Exit code 77 where there is no Go, or the Python environment could not be
made: CTest shows it as skipped.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HALVES = (["test_uploads.py"], ["test_connections.py", "test_hostile.py", "test_jobs.py", "test_refusals.py"])


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def go_driver(build):
    if not shutil.which("go") or not Path("/usr/share/gocode/src/google.golang.org/grpc").is_dir():
        skip("there is no Go here (Debian's golang-go and golang-google-grpc-dev)")
    if not (ROOT / "client/go/vendor/modules.txt").exists():
        subprocess.run([ROOT / "client/go/make-vendor"], check=True)
    driver = build / "tests/conformance_driver_go"
    environment = {**os.environ, "GOFLAGS": "-mod=vendor", "GOPROXY": "off", "GOTOOLCHAIN": "local",
                   "GOCACHE": os.environ.get("GOCACHE", str(build / "go-cache"))}
    subprocess.run(["go", "build", "-o", driver, "./internal/conformance"], check=True, env=environment,
                   cwd=ROOT / "client/go")
    return str(driver)


def command(build, client):
    if client == "cpp":
        return str(build / "tests/conformance_driver_cpp")
    if client == "go":
        return go_driver(build)
    if not (build / "venv/stamp").exists():
        skip(f"{build / 'venv'} could not be made: PyPI cannot be reached")
    script = f"{build / 'venv/bin/python'} {HERE / 'drivers/driver.py'}"
    return script + " --aio" if client == "python_aio" else script


def main():
    build, client = Path(sys.argv[1]).resolve(), sys.argv[2]
    os.environ["SPARSEFW_CONFORMANCE_DRIVER"] = command(build, client)
    os.environ.setdefault("SPARSEFW_BIN_DIR", str(build / "bin"))
    os.chdir(HERE)
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfs", "-p", "no:cacheprovider"]
    if sys.argv[3:]:
        os.execv(sys.executable, [*pytest, *sys.argv[3:]])
    # Two at a time: scenarios mostly wait.
    runs = [subprocess.Popen([*pytest, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for files in HALVES]
    for run in runs:
        print(run.communicate()[0])
    # A half that a signal ended has a negative code.
    sys.exit(next((abs(run.returncode) for run in runs if run.returncode), 0))


if __name__ == "__main__":
    main()
