"""Commands that must succeed."""
import os
import subprocess


def run(*command, env=None, **options):
    """Standard output; on failure the test shows both streams."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, **options)
    assert done.returncode == 0, (f"exit code {done.returncode}: {' '.join(map(str, command))}\n"
                                  f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout
