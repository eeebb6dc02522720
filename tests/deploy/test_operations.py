"""Commands of docs/deploy.md, docs/backup.md and docs/upgrade.md, as they stand there."""
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import machine
from conftest import SOURCE_DIR
from support.layers import Layer
from support.processes import BIN_DIR, HANG, Cli, Server, wait_until

DOCUMENT = "".join((SOURCE_DIR / f"docs/{page}.md").read_text() for page in ("deploy", "backup", "upgrade"))


def commands(name):
    """All blocks between the marks, as one script."""
    part = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", DOCUMENT, re.S)[1]
    return "".join(re.findall(r"^```\n(.*?)^```$", part, re.S | re.M))


def run(script, **environment):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
                          env={**os.environ, **{name: str(value) for name, value in environment.items()}})


def backup(state, backups):
    installed = "/usr/share/sparsefw/backup/sparsefw-backup"
    assert installed in commands("backup")
    return run(commands("backup").replace(installed, str(SOURCE_DIR / "deploy/backup/sparsefw-backup")),
               STATE=state, BACKUPS=backups)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("package"))


def pack(folder, *settings):
    done = subprocess.run(["cpack", "--config", BIN_DIR.parent / "CPackConfig.cmake", "-B", folder,
                           "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", *settings],
                          capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("sparsefw_*.deb"))


def on_a_machine(script, cwd):
    """Runs a script as root of a machine that is thrown away."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("SPARSEFW_") and not name.lower().endswith("_proxy")}
    done = subprocess.run([sys.executable, machine.__file__, script], cwd=cwd, timeout=HANG,
                          capture_output=True, text=True, env=environment)
    assert not Path("/etc/sparsefw/tokens").exists(), "it was this machine's /etc"
    return done


# After the commands: what they were for. Prometheus scrapes every 15 s.
CHECKS = r"""
sparsefw-cli health --server localhost:50051 --tls-ca /etc/sparsefw/tls/server.pem
ask() { promtool query instant http://localhost:9090 "$1" | grep -q "=> $2 @"; }
for i in $(seq 60); do
  ask 'up{job="sparsefw"}' 1 && ask 'probe_success{job="sparsefw-grpc"}' 1 && scraped=yes && break
  sleep 0.5
done
[ "${scraped:-}" = yes ] || { cat /mnt/*.log; exit 1; }
SPARSEFW_TOKEN= sparsefw-cli list --server localhost:50051 --tls-ca /etc/sparsefw/tls/server.pem && exit 1
test -s mask.safetensors -a -s /var/lib/grafana/dashboards/sparsefw.json
python3 -m json.tool /var/lib/grafana/dashboards/sparsefw.json >/dev/null
[ "$(stat -L -c '%u %a' /var/lib/sparsefw-server)" = "61234 700" ]
echo THE FIRST DAY IS OVER
"""


@pytest.mark.skipif(bool(machine.why_not()), reason=machine.why_not())
@pytest.mark.skipif(shutil.which("prometheus-blackbox-exporter") is None,
                    reason="prometheus-blackbox-exporter is not installed")
def test_the_first_day(package, tmp_path):
    first_day = commands("first-day")
    assert first_day.count("\n") > 20
    (tmp_path / "dist").mkdir()
    shutil.copy(package, tmp_path / "dist")
    (tmp_path / "tests").symlink_to(SOURCE_DIR / "tests")
    script = tmp_path / "script"
    script.write_text("set -euo pipefail\n" + first_day + CHECKS)
    done = on_a_machine(script, tmp_path)
    assert done.returncode == 0 and "THE FIRST DAY IS OVER" in done.stdout, done.stdout + done.stderr


# Packages OLD and PACKAGE with the same programs. What a newer server would do to the database, sqlite3 does.
UPGRADE = r"""
export STATE=/var/lib/sparsefw-server BACKUPS=/mnt/backups CONNECTION="--server localhost:50051"
F=tests/fixtures/minilm/encoder.layer.5.attention.output.dense
submit() {
  sparsefw-cli submit --weights $F.safetensors:${F##*/}.weight --gram $F.safetensors:gram --pattern 2:4 --method wanda \
    --json --quiet --out "$1" | sed -n 's/.*"job": *"\([^"]*\)".*/\1/p'
}
version() { dpkg-query -W -f '${Version}' sparsefw; }
fetched() { sparsefw-cli fetch "$1" --keep-tensors --out again.safetensors --overwrite --json >/dev/null && cmp again.safetensors "$2"; }

apt install -y "$OLD"
systemctl status sparsefw-server && exit 1
systemctl enable --now sparsefw-server
job=$(submit mask.safetensors)
old=$(cat /mnt/sparsefw-server.pid)
BEFORE
echo BACKED UP
UPGRADE
[ "$(version)" = 0.2.0 ] && [ "$(cat /mnt/sparsefw-server.pid)" != "$old" ]
AFTER
fetched "$job" mask.safetensors
echo UPGRADED
ROLLBACK
[ "$(version)" = 0.1.0 ]
fetched "$job" mask.safetensors
echo ROLLED BACK

later=$(submit later.safetensors)
systemctl stop sparsefw-server
sqlite3 $STATE/sparsefw.db 'PRAGMA user_version = 99'
systemctl start sparsefw-server && exit 1
grep -q 'the schema version must be at most .*(STORE_VERSION)' /mnt/sparsefw-server.log
echo REFUSED
systemctl stop sparsefw-server
STOPPED
BACKUP=$(echo "$BACKUPS"/*)
RESTORE
systemctl start sparsefw-server
fetched "$job" mask.safetensors
sparsefw-cli status "$later" && exit 1
echo RESTORED

apt remove -y sparsefw
[ -s "$STATE/sparsefw.db" ]
apt purge -y sparsefw
[ ! -e /var/lib/private/sparsefw-server ] && [ ! -e "$STATE" ]
echo THE UPGRADE IS OVER
"""


@pytest.mark.skipif(bool(machine.why_not()), reason=machine.why_not())
@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
def test_an_upgrade_and_a_rollback(package, tmp_path):
    (tmp_path / "new").mkdir()
    newer = pack(tmp_path / "new", "-D", "CPACK_PACKAGE_VERSION=0.2.0")
    (tmp_path / "tests").symlink_to(SOURCE_DIR / "tests")
    [stopped] = re.findall(r"^```\nsystemctl stop sparsefw-server\n(mv .*?)^```$", DOCUMENT, re.S | re.M)
    text = UPGRADE
    for name, lines in {"BEFORE": commands("before"), "UPGRADE": commands("upgrade"), "AFTER": commands("after"),
                        "ROLLBACK": commands("rollback"), "STOPPED": stopped, "RESTORE": commands("restore")}.items():
        assert lines.strip()
        text = re.sub(rf"^{name}$", lambda _, lines=lines: lines, text, flags=re.M)
    script = tmp_path / "script"
    script.write_text(f"set -euo pipefail\nOLD={package} PACKAGE={newer}\n{text}")
    done = on_a_machine(script, tmp_path)
    assert done.returncode == 0 and "THE UPGRADE IS OVER" in done.stdout, done.stdout + done.stderr


class Submitter(threading.Thread):
    """Submits jobs until it is told to stop, and remembers those that were acknowledged."""

    def __init__(self, address, layer):
        super().__init__(daemon=True)
        self.cli, self.layer, self.stop, self.jobs = Cli(address), layer, threading.Event(), []

    def run(self):
        while not self.stop.is_set():
            done = self.cli.run(*self.layer.submit("--method", "wanda", "--json", "--keep-tensors", "-q"))
            if done.code != 0:
                return
            self.jobs.append((done.json()["job"], self.layer.mask_file.read_bytes()))


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
def test_a_backup_of_a_live_server_is_restored(tmp_path):
    """Under load; what was acknowledged before the backup began is there after it was restored."""
    layer = Layer(tmp_path, 64, 96, seed=9)
    server = Server(tmp_path, "--workers", "2")
    submitter = Submitter(server.address, layer)
    try:
        cli = Cli(server.address)
        slow = cli.run(*layer.submit("--method", "sparsefw", "--iterations", "100000000", "--detach",
                                     "--json", out=False)).expect(0).json()["job"]
        submitter.start()
        wait_until(lambda: len(submitter.jobs) > 3, "jobs")
        acknowledged = list(submitter.jobs)
        done = backup(server.state_dir, tmp_path / "backups")
        assert done.returncode == 0, done.stderr
        more = len(submitter.jobs)
        wait_until(lambda: len(submitter.jobs) > more, "jobs after the backup")
    finally:
        submitter.stop.set()
        server.signal(signal.SIGKILL)
        server.close()
    shutil.rmtree(server.state_dir)
    (tmp_path / "restored").mkdir()
    done = run(commands("restore"), STATE=tmp_path / "restored/state", BACKUP=done.stdout.strip())
    assert done.returncode == 0, done.stderr
    restored = Server(tmp_path / "restored")
    try:
        cli = Cli(restored.address)
        for job, mask in acknowledged:
            out = tmp_path / "again.safetensors"
            cli.run("fetch", job, "--out", out, "--overwrite", "--keep-tensors", "--json").expect(0)
            assert out.read_bytes() == mask, job
        wait_until(lambda: cli.run("status", slow, "--json").json()["state"] == "RUNNING", "the job")
        cli.run("cancel", slow).expect(0)
        assert "missing_file" not in restored.log() and "corrupt" not in restored.log(), restored.log()
        cli.run(*layer.submit("--method", "wanda")).expect(0)
        assert restored.stop() == 0
    finally:
        restored.close()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
def test_a_backup_that_lacks_a_file_fails(tmp_path):
    """A file that the server still names, that is; and only the newest backups are kept."""
    layer = Layer(tmp_path, 64, 96, seed=9)
    server = Server(tmp_path)
    try:
        Cli(server.address).run(*layer.submit("--method", "wanda", "--keep-tensors")).expect(0)
        program = [SOURCE_DIR / "deploy/backup/sparsefw-backup", server.state_dir, tmp_path / "backups", "2"]
        made = [subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip() for _ in range(3)]
        kept = sorted(map(str, (tmp_path / "backups").iterdir()))
        assert kept == made[1:]
        for wrong in ("0", "-1", "all"):
            done = subprocess.run([*program[:-1], wrong], capture_output=True, text=True)
            assert done.returncode == 2 and "KEEP" in done.stderr
        assert sorted(map(str, (tmp_path / "backups").iterdir())) == kept
        # What cannot be compared is no backup either.
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/join").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin/join").chmod(0o755)
        done = subprocess.run(program, capture_output=True, env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
        assert done.returncode == 1
        assert sorted(map(str, (tmp_path / "backups").iterdir())) == kept
        next((server.state_dir / "spool").glob("*.tensor")).unlink()
        done = subprocess.run(program, capture_output=True, text=True)
        assert done.returncode == 1 and "lacks files of" in done.stderr
        assert sorted(map(str, (tmp_path / "backups").iterdir())) == kept
    finally:
        server.close()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
def test_a_backup_ends_beside_commits_and_sums_that_are_replaced(tmp_path):
    """A database of 80 MB, whose commits come faster than it is copied; the folder of backups has a blank."""
    state, backups = tmp_path / "state", tmp_path / "of mine"
    (state / "spool").mkdir(parents=True)
    (tmp_path / "of").mkdir()  # not a backup
    with sqlite3.connect(state / "sparsefw.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE tensors (id TEXT, sums TEXT, complete INT, committed INT)")
        database.execute("CREATE TABLE jobs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                         " WHERE i < 80) SELECT i, randomblob(1000000) AS record FROM n")
        database.execute("INSERT INTO tensors VALUES ('gram', 'sums-0', 0, 8)")
    (state / "spool/sums-0.part").write_bytes(bytes(1000))
    for number in range(200):
        (state / f"spool/a-{number:03}.tensor").write_bytes(bytes(10000))
    stop = threading.Event()

    def accumulate():
        database = sqlite3.connect(state / "sparsefw.db", timeout=HANG)
        number, commits = 0, 0
        while not stop.is_set():
            time.sleep(0.02)
            commits += 1
            if commits % 100:
                database.execute("UPDATE tensors SET committed = committed + 1")
                database.commit()
                continue
            number += 1
            (state / f"spool/sums-{number}.part").write_bytes(bytes(1000))
            database.execute("UPDATE tensors SET sums = ?", (f"sums-{number}",))
            database.commit()
            (state / f"spool/sums-{number - 1}.part").unlink()
        database.close()

    slow = tmp_path / "bin/cp"  # the whole spool takes longer than one sum stays
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\ncase "$*" in *"/spool/. "*) sleep 3 ;; esac\nexec /bin/cp "$@"\n')
    slow.chmod(0o755)
    thread = threading.Thread(target=accumulate)
    thread.start()
    try:
        for _ in range(2):
            done = subprocess.run([SOURCE_DIR / "deploy/backup/sparsefw-backup", state, backups, "1"], capture_output=True,
                                  text=True, timeout=HANG, env={**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"})
            assert done.returncode == 0, done.stderr
    finally:
        stop.set()
        thread.join()
    kept = Path(done.stdout.strip())
    assert list(backups.iterdir()) == [kept] and (tmp_path / "of").is_dir()
    assert sorted(one.name for one in kept.iterdir()) == ["sparsefw.db", "spool"]
    with sqlite3.connect(kept / "sparsefw.db") as database:
        (sums,) = database.execute("SELECT sums FROM tensors").fetchone()
    assert (kept / f"spool/{sums}.part").stat().st_size == 1000
