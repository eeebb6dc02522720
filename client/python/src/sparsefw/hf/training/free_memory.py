"""Memory that is left within the limits of Linux control groups, such as a container's or a Slurm job's.

What the machine has free says nothing there: above the limit the system ends the process.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

# (limit, usage, what of the usage is page cache, which the system can drop)
_VERSION_2: Final = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_VERSION_1: Final = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def within_limits(root: Path = Path("/")) -> int | None:
    """Bytes that the tightest limit on this process leaves; None: there is none that can be read.

    Args:
        root: of the system's files.
    """
    mounted = root / "sys/fs/cgroup"
    left = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            groups, names = _groups(mounted, path), _VERSION_2
        elif "memory" in controllers.split(","):
            groups, names = _groups(mounted / "memory", path), _VERSION_1
        else:
            continue
        left += [found for group in groups if (found := _left(group, names)) is not None]
    return min(left, default=None)


def _groups(mounted: Path, path: str) -> list[Path]:
    """The group and all above it, whose limits hold, too.

    Within a container the path may be the host's, of which only the container's own group is there: at the
    mount point.
    """
    group = PurePosixPath(path.lstrip("/"))
    if ".." in group.parts:
        return [mounted]
    return [mounted / each for each in (group, *group.parents)]


def _left(group: Path, names: tuple[str, str, tuple[str, str]]) -> int | None:
    """None: the group has no limit, or is not there."""
    limit_file, usage_file, cache_keys = names
    limit, used = _text(group / limit_file).strip(), _text(group / usage_file).strip()
    if not limit.isdecimal() or not used.isdecimal():
        return None
    cache = 0
    for line in _text(group / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key in cache_keys and value.isdecimal():
            cache += int(value)
    return max(0, int(limit) - int(used) + min(cache, int(used)))


def _text(path: Path) -> str:
    """The text of the file; "": it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
