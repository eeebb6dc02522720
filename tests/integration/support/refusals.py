"""sparsefw-server where it must not start."""
import subprocess

from support.processes import BIN_DIR, HANG, clean_environment


def run(*flags, env=None, folder=None):
    """(exit code, stdout, stderr)"""
    done = subprocess.run([str(BIN_DIR / "sparsefw-server"), *map(str, flags)], text=True,
                          capture_output=True, timeout=HANG, cwd=folder,
                          env={**clean_environment(), **(env or {})})
    return done.returncode, done.stdout, done.stderr


def refuses(code, words, *flags, env=None, folder=None):
    """Exit code, and one sentence that contains every one of `words`, which is returned."""
    got, out, err = run(*flags, env=env, folder=folder)
    assert got == code, f"expected {code}, got {got}: {err}"
    assert out == ""
    message = [line for line in err.splitlines() if line.startswith("sparsefw-server: ")]
    assert len(message) == 1, f"not one sentence:\n{err}"
    for word in words:
        assert word in message[0], f"{word!r} not in: {message[0]}"
    assert "terminate called" not in err and "ERROR:" not in err
    return message[0]


def loopback(folder, *flags):
    return ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
            "--state-dir", folder / "state", *flags)
