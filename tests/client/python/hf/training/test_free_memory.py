"""Free memory within the limits of control groups, as the system's files show them."""

import psutil
import pytest
import torch
from sparsefw.hf.training import distill, free_memory

MiB = 1 << 20
V1_UNLIMITED = 9223372036854771712


@pytest.fixture
def system(tmp_path):
    """Writes files of a system below a folder of its own, which it returns."""

    def write(groups, files=None):
        """`groups`: the lines of /proc/self/cgroup; `files`: texts by path below /sys/fs/cgroup."""
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for name, text in (files or {}).items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return write


def v2(folder, limit, used, inactive=0):
    """Files of a control group of version 2."""
    return {
        f"{folder}memory.max": limit,
        f"{folder}memory.current": used,
        f"{folder}memory.stat": f"anon 5\ninactive_file {inactive - inactive // 4}\nactive_file {inactive // 4}",
    }


def v1(folder, limit, used, inactive=0):
    return {
        f"memory/{folder}memory.limit_in_bytes": limit,
        f"memory/{folder}memory.usage_in_bytes": used,
        f"memory/{folder}memory.stat": f"inactive_file 3\ntotal_inactive_file {inactive}\ntotal_active_file 0",
    }


def test_a_container_sees_its_own_group_as_the_root(system):
    assert free_memory.within_limits(system("0::/\n", v2("", 800 * MiB, 300 * MiB))) == 500 * MiB


def test_the_page_cache_that_can_be_dropped_is_free(system):
    root = system("0::/\n", v2("", 800 * MiB, 300 * MiB, inactive=200 * MiB))
    assert free_memory.within_limits(root) == 700 * MiB


def test_the_tightest_group_on_the_way_to_the_root_counts(system):
    files = v2("a/b/", "max", 100 * MiB) | v2("a/", 400 * MiB, 350 * MiB) | v2("a/b/c/", 900 * MiB, 50 * MiB)
    assert free_memory.within_limits(system("0::/a/b/c\n", files | v2("other/", 10, 9))) == 50 * MiB


@pytest.mark.parametrize("path", ["/docker/not/here", "/../../elsewhere"])
def test_a_path_of_the_host_within_a_container(path, system):
    """The group that the container may see is at the mount point."""
    assert free_memory.within_limits(system(f"0::{path}\n", v2("", 600 * MiB, 100 * MiB))) == 500 * MiB


def test_version_1(system):
    groups = "9:name=systemd:/x\n4:cpu,memory:/job/7\n0::/\n"
    files = v1("", V1_UNLIMITED, 4000 * MiB) | v1("job/7/", 300 * MiB, 200 * MiB, inactive=50 * MiB)
    assert free_memory.within_limits(system(groups, files)) == 150 * MiB


def test_a_group_above_its_limit_has_nothing_free(system):
    assert free_memory.within_limits(system("0::/\n", v2("", 100, 300))) == 0


@pytest.mark.parametrize(
    "files", [{}, v2("", "max", 10), v2("", "nonsense", 10), {"memory.max": 10}, {"memory.max": 10, "memory.current": ""}])
def test_no_limit_that_can_be_read(files, system):
    assert free_memory.within_limits(system("0::/\nbroken\n", files)) is None


def test_another_system(tmp_path):
    assert free_memory.within_limits(tmp_path) is None


@pytest.mark.parametrize("limit", [None, 1000, 1 << 60])
def test_distillation_asks_for_the_lesser_of_machine_and_limit(monkeypatch, limit):
    monkeypatch.setattr(free_memory, "within_limits", lambda: limit)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 5000}))
    assert distill._free(torch.device("cpu")) == (1000 if limit == 1000 else 5000)
