"""The steps of script/release that decide something. What it makes it tries itself."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = ROOT / "script/lib/release"
TABLE = {
    "sparsefw-0.1.0.tar.gz": "| source |",
    "sparsefw-0.1.0-py3-none-any.whl": "Python client",
    "sparsefw_server-0.1.0-py3-none-manylinux_2_35_x86_64.whl": "server and CLI for glibc",
    "sparsefw_0.1.0_amd64.deb": "server and CLI for Debian 12",
    "libsparsefw-dev_0.1.0_amd64.deb": "C++ headers",
    "sparsefw-0.1.0-image.oci.tar": "container image",
    "sparsefw-0.1.0-debian.cdx.json": "bill of materials",
}


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def pack(files, archive):
    """files: name -> (content, executable)"""
    folder = archive.parent / "packed/sparsefw-1"
    shutil.rmtree(folder, ignore_errors=True)
    for name, (content, executable) in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        (folder / name).chmod(0o755 if executable else 0o644)
        os.utime(folder / name, (10**9, 10**9))
    (folder / "link").symlink_to("a")
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, "sparsefw-1")


def test_unpack_touches_only_what_changed(tmp_path):
    place = tmp_path / "source"
    pack({"a": ("1", False), "b/c": ("2", False), "d/gone": ("3", False)}, tmp_path / "s.tar.gz")
    assert run(STEPS / "unpack", tmp_path / "s.tar.gz", place).returncode == 0
    (place / "build").mkdir()
    (place / "build/made").touch()
    for name in ("a", "b/c"):
        os.utime(place / name, (5, 5))
    pack({"a": ("1", True), "b/c": ("4", False), "e": ("5", False)}, tmp_path / "s.tar.gz")
    assert run(STEPS / "unpack", tmp_path / "s.tar.gz", place).returncode == 0
    assert (place / "a").stat().st_mtime == 5 and os.access(place / "a", os.X_OK)
    assert (place / "b/c").read_text() == "4" and (place / "b/c").stat().st_mtime > 10**9
    assert (place / "e").read_text() == "5" and os.readlink(place / "link") == "a"
    assert not (place / "d/gone").exists() and (place / "build/made").exists()
    assert not (tmp_path / "source.new").exists()


def notes(changelog, tools, folder, tried="tried with podman"):
    return run(sys.executable, STEPS / "notes", changelog, "0.1.0", folder, tools, tried)


@pytest.fixture
def release(tmp_path):
    (tmp_path / "release").mkdir()
    for name in TABLE:
        (tmp_path / "release" / name).touch()
    return tmp_path / "release"


def test_notes_are_those_of_the_version(tmp_path, release):
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 (2026-11-26)\n\n- this\n\n## 0.0.9\n\n- old\n")
    done = notes(changelog, "image root", release)
    assert done.returncode == 0 and done.stdout.startswith("# SparseFW 0.1.0\n")
    assert "- this" in done.stdout and "- new" not in done.stdout and "- old" not in done.stdout
    for name, what in TABLE.items():
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"| `{name}` |"))
        assert what in line
    assert "tried in an empty Debian" in done.stdout and "tried with podman" in done.stdout
    changelog.write_text("## Unreleased\n\n- new\n")
    assert "- new" in notes(changelog, "root", release).stdout
    changelog.write_text("## 0.1.01\n\n- other\n")
    assert notes(changelog, "root", release).returncode == 1


def test_notes_say_what_was_not_tried(tmp_path, release):
    done = notes(ROOT / "CHANGELOG.md", "", release).stdout
    assert "There is no image archive in this release: buildah did not run where it was made." in done
    assert "tried in an empty folder, with the libraries of the machine" in done and "not tried" in done
    made = notes(ROOT / "CHANGELOG.md", "image", release, "a job ran in its files").stdout
    assert "There is no image" not in made and "; a job ran in its files |" in made


def test_the_layer_is_a_safetensors_file(tmp_path):
    assert run(sys.executable, STEPS / "layer.py", tmp_path).returncode == 0
    data = (tmp_path / "layer.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    assert {name: entry["shape"] for name, entry in header.items()} == {"weight": [24, 32], "gram": [32, 32]}
    assert len(data) == 8 + size + header["gram"]["data_offsets"][1]


@pytest.fixture
def clone(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("a source archive has no history")
    folder = tmp_path / "clone"
    assert run("git", "clone", "--quiet", "--no-hardlinks", "--depth", "1", f"file://{ROOT}", folder).returncode == 0
    shutil.copy(ROOT / "script/release", folder / "script/release")
    shutil.copytree(STEPS, folder / "script/lib/release", dirs_exist_ok=True)
    for words in (["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t", "--allow-empty"]):
        assert run("git", *words, cwd=folder).returncode == 0
    return folder


def test_a_release_is_of_a_commit(clone):
    (clone / "README.md").write_text("changed")
    done = run(clone / "script/release")
    assert done.returncode == 2 and "changes that are not committed" in done.stderr
    assert not (clone / "dist").exists()
    assert run(clone / "script/release", "--help").returncode == 2


def test_what_is_there_already_is_not_made_again(clone):
    tree = run("git", "rev-parse", "HEAD^{tree}", cwd=clone).stdout.strip()
    tools = run(clone / "script/lib/release/tools").stdout.strip()
    for folder in ("dist/release", "build/release"):
        (clone / folder).mkdir(parents=True)
    (clone / "dist/release/file").write_text("made")
    sums = run("sha256sum", "--", "file", cwd=clone / "dist/release").stdout
    (clone / "dist/release/SHA256SUMS").write_text(sums)
    (clone / "build/release/made").write_text(f"{tree} {tools}\n")
    done = run(clone / "script/release")
    assert done.returncode == 0 and "has the release of this commit" in done.stdout, done
    assert (clone / "dist/release/file").read_text() == "made"


def hash_of(tree, *paths):
    return run(tree / "script/lib/tree-hash", *paths, cwd=tree)


def test_a_tree_has_a_hash_with_and_without_git(tmp_path):
    (tmp_path / "script/lib").mkdir(parents=True)
    shutil.copy(ROOT / "script/lib/tree-hash", tmp_path / "script/lib")
    for name in ("a", "z"):
        (tmp_path / name).write_text(name)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/made").touch()
    unpacked = hash_of(tmp_path)
    assert unpacked.returncode == 0 and len(unpacked.stdout) == 65, unpacked.stderr
    (tmp_path / "build/made").write_text("anew")
    assert hash_of(tmp_path).stdout == unpacked.stdout != hash_of(tmp_path, "a").stdout
    for words in (["init", "-q"], ["add", "a", "z", "script"]):
        run("git", "-C", tmp_path, *words, check=True)
    tracked = hash_of(tmp_path, "a", "z")
    (tmp_path / "z").unlink()  # the last one, and git still has it
    deleted = hash_of(tmp_path, "a", "z")
    assert deleted.returncode == 0 and len(deleted.stdout) == 65 and deleted.stdout != tracked.stdout
