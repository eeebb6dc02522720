"""A page for a file or a folder of sources."""

import re
import subprocess
from pathlib import Path

LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".go": "go", ".proto": "proto", ".yaml": "yaml",
             ".yml": "yaml", ".json": "json", ".md": "markdown", ".sh": "bash", ".conf": "toml"}
MOST = 64 << 10


def page_of(path):
    return "source/" + re.sub(r"[^\w/-]", "-", path) + ".md"


def text_of(root, path):
    """Markdown: the text of a file; of a folder that of all its files."""
    if (root / path).is_file():
        return f"# {path}\n\n{fenced(root / path)}"
    listed = subprocess.run(["git", "ls-files", "--", path], cwd=root, check=True, capture_output=True, text=True)
    parts = [f"# {path}"]
    for name in listed.stdout.splitlines():
        parts.append(f"## {name.removeprefix(path + '/')}\n\n{fenced(root / name)}")
    return "\n\n".join(parts) + "\n"


def fenced(path):
    data = path.read_bytes()
    if len(data) > MOST or b"\0" in data:
        return f"{len(data)} bytes.\n"
    language = LANGUAGES.get(Path(path).suffix) or ("bash" if data.startswith(b"#!") and b"sh\n" in data[:30] else "text")
    return f"~~~~~~{language}\n{data.decode().rstrip()}\n~~~~~~\n"
