"""sparsefw-server as a process: ready line, flags, environment, config file, ports, errors."""
import contextlib
import json
import os
import re
import socket
import subprocess
import urllib.request

import pytest

from support.processes import HANG, Cli, clean_environment
from support.refusals import loopback, refuses, run


def test_ready_line_is_all_there_is_on_standard_output(start_server):
    server = start_server()
    assert server.device == "cpu"
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        assert response.status == 200
    assert Cli(server.address).run("info").code == 0
    assert server.stop() == 0
    assert len(server.output) == 1
    assert "serving" in server.log()


def test_logs_as_json(start_server):
    server = start_server("--log-format", "json")
    Cli(server.address).run("status", "jobs/none")
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert any(line.get("message") == "serving" or "serving" in line.values() for line in lines)


def test_a_long_name_is_cut_in_the_log(start_server):
    server = start_server()
    from support.rpc import Client, grpc, prune_service_pb2
    client = Client(server.address)
    with pytest.raises(grpc.RpcError):
        client.jobs.GetJob(prune_service_pb2.GetJobRequest(name="jobs/" + "x" * 200_000))
    client.close()
    assert server.stop() == 0
    assert max(map(len, server.log().splitlines())) < 4000
    assert "jobs/xxx" in server.log()


def notifications(path):
    """A socket as systemd gives it to a program of Type=notify."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    listener.settimeout(HANG)
    return listener


def test_tells_systemd_when_it_is_ready_and_when_it_stops(start_server, folder):
    path = folder / "notify"
    with notifications(path) as listener:
        server = start_server(env={"NOTIFY_SOCKET": str(path)})
        assert listener.recv(4096) == b"READY=1"
        assert Cli(server.address).run("info").code == 0
        assert server.stop() == 0
        assert b"STOPPING=1" in listener.recv(4096)


def test_help(folder):
    code, out, err = run("--help")
    assert code == 0 and err == ""
    for flag in ("--config", "--listen", "--metrics-listen", "--state-dir", "--device", "--workers",
                 "--host-memory", "--log-level", "--log-format"):
        assert flag in out


def test_version(folder):
    code, out, err = run("--version")
    assert code == 0 and err == ""
    assert re.fullmatch(r"sparsefw-server \d+\.\d+\.\d+\n", out)
    # A variable of that name is no question.
    refuses(2, ["--workers"], *loopback(folder), "--workers", "0", env={"SPARSEFW_VERSION": "1"})


@pytest.mark.parametrize("flags, words", [
    (("--no-such-flag",), ["--no-such-flag"]),
    (("--workerz", "3"), ["--workerz is no flag; --help lists them"]),
    (("--listen", "nonsense"), ["--listen", "HOST:PORT", "nonsense"]),
    (("--listen", "127.0.0.1:70000"), ["--listen", "70000"]),
    (("--workers", "0"), ["--workers", "0"]),
    (("--workers", "many"), ["--workers", "many"]),
    (("--host-memory", "8 elephants"), ["--host-memory", "elephants"]),
    (("--device", "tpu"), ["--device", "tpu"]),
    (("--log-level", "loud"), ["--log-level", "loud"]),
    (("--log-format", "xml"), ["--log-format", "xml"]),
    (("--config", "/no/such/file"), ["/no/such/file"]),
])
def test_bad_flags(folder, flags, words):
    refuses(2, words, *loopback(folder), *flags)


def test_port_in_use(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        refuses(1, [address], *loopback(folder, "--listen", address))
        refuses(1, [address], *loopback(folder, "--metrics-listen", address))


def test_a_held_port_is_for_servers_that_ask_for_it_alone(start_server):
    """So that a server which is started again finds its port free, whatever else this machine does."""
    server = start_server()
    port = int(server.address.rsplit(":", 1)[1])

    def others():
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(500)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            return [one.getsockname()[1] for one in sockets]

    assert port not in others()
    assert server.stop() == 0
    assert port not in others()
    with socket.socket() as one, pytest.raises(OSError):
        one.bind(("127.0.0.1", port))
    again = start_server("--listen", server.address, "--state-dir", server.state_dir)
    assert again.address == server.address


def test_two_servers_cannot_share_a_state_folder(start_server, folder):
    first = start_server()
    refuses(1, [str(first.state_dir), "using"],
            *loopback(folder)[:4], "--state-dir", first.state_dir)
    assert Cli(first.address).run("info").code == 0


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_both_ports_on_ipv6(start_server):
    server = start_server("--listen", "[::1]:0", "--metrics-listen", "[::1]:0")
    assert server.metrics.startswith("[::1]:") and server.address.startswith("[::1]:")
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        assert response.status == 200
    assert Cli(server.address).run("info").code == 0


def test_state_folder_that_cannot_be_made(folder):
    (folder / "file").write_text("not a folder")
    refuses(1, [str(folder / "file")], *loopback(folder)[:4], "--state-dir", folder / "file/state")


def test_old_state_does_not_hinder_a_new_start(start_server):
    first = start_server()
    first.process.kill()
    first.process.wait()
    second = start_server("--state-dir", first.state_dir)
    assert Cli(second.address).run("list").code == 0


def workers(server):
    return Cli(server.address).run("info", "--json").expect(0).json()["workers"]


def test_flag_over_environment_over_file(start_server, folder):
    config = folder / "server.toml"
    config.write_text("workers = 2\nlog-format = json\n")
    from_file = start_server("--config", config)
    assert workers(from_file) == 2
    from_environment = start_server("--config", config, env={"SPARSEFW_WORKERS": "3"})
    assert workers(from_environment) == 3
    from_flag = start_server("--config", config, "--workers", "4", env={"SPARSEFW_WORKERS": "3"})
    assert workers(from_flag) == 4
    assert from_flag.log().startswith("{"), "log-format of the file"


def test_everything_from_the_environment(start_server, folder):
    server = start_server(defaults=False, env={
        "SPARSEFW_LISTEN": "127.0.0.1:0", "SPARSEFW_METRICS_LISTEN": "127.0.0.1:0",
        "SPARSEFW_STATE_DIR": str(folder / "environment"), "SPARSEFW_HOST_MEMORY": "64MiB",
        "SPARSEFW_LOG_LEVEL": "debug", "SPARSEFW_DEVICE": "cpu"})
    assert (folder / "environment").is_dir()
    info = Cli(server.address).run("info", "--json").expect(0).json()
    assert 64 << 20 in info.values(), info


def test_bad_environment_and_bad_config_file(folder):
    refuses(2, ["workers", "none"], *loopback(folder), env={"SPARSEFW_WORKERS": "none"})
    config = folder / "server.toml"
    config.write_text("workers = 2\nworkerz = 3\n")
    refuses(2, ["workerz"], *loopback(folder), "--config", config)
    config.write_text("workers = 0\n")
    refuses(2, ["workers"], *loopback(folder), "--config", config)


def test_config_file_from_the_environment(start_server, folder):
    config = folder / "server.toml"
    config.write_text("workers = 5\n")
    assert workers(start_server(env={"SPARSEFW_CONFIG": str(config)})) == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_unreadable_state_folder(folder):
    from support.processes import as_nobody
    (folder / "state").mkdir(mode=0o700)
    done = subprocess.run([*as_nobody(folder, "sparsefw-server"),
                           *map(str, loopback(folder))], capture_output=True, text=True,
                          timeout=HANG, env=clean_environment())
    assert done.returncode == 1, done.stderr
    assert re.search(r"sparsefw-server: .*" + re.escape(str(folder / "state")), done.stderr)
    assert "ermission" in done.stderr
