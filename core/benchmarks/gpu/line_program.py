"""A program that answers one line of JSON for one line of JSON, within a time limit."""
import json
import queue
import subprocess
import tempfile
import threading


class ProgramError(Exception):
    pass


class LineProgram:
    """Started once; `description` is the line that it prints first. Ends when closed."""

    def __init__(self, command, seconds, environment=None):
        self._name = str(command[0]).rsplit("/", 1)[-1]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env=environment)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.description = self._next(seconds)

    def ask(self, request, seconds):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended; _next says how
        return self._next(seconds)

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self, seconds):
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            self.close()
            raise ProgramError(f"{self._name} did not answer within {seconds:.0f} s") from None
        if line is None:
            code = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-2000:]
            self.close()
            raise ProgramError(f"{self._name} ended with status {code}: {said or 'no message'}")
        try:
            return json.loads(line)
        except ValueError:
            self.close()
            raise ProgramError(f"{self._name} printed what is no JSON: {line[:200]}") from None

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            try:
                pipe.close()
            except OSError:
                pass
