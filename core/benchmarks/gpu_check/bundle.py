"""Packs what a checkout lacks to check a machine with a GPU: programs, tests, libraries. Scripts,
benchmarks and fixtures travel in the checkout itself."""
import datetime
import lzma
import shutil
import tarfile
from pathlib import Path

from gpu_check import layout, libraries
from gpu_check.layout import NAME, ROOT, Problem
from harness import store
from harness.process import ProgramError, run

# Limit of the checkout's files and the bundle together: what travels to a machine that is lent.
LIMIT_BYTES = 56 << 20
# Nothing else is started by the parts of a check, or by script/bench-gpu.
PROGRAMS = ("sparsefw-server", "sparsefw-cli", "sparsefw-bench-device", "sparsefw-bench-layer")
OF_CUDA = ("sparsefw-bench-smoke", layout.MODULE)
# One program's copy of a library is found again in the next: the window takes them all.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 192 << 20}]


def tree_bytes(root=ROOT):
    """The bytes of all files that git tracks, or would if they were added."""
    try:
        listed = run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                      "--exclude-standard"], 60).out
    except ProgramError as error:
        raise Problem(f"git does not say which files {root} has: {error}") from None
    paths = [root / name for name in set(listed.split("\0")) if name]
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.is_file())


def sizes(tree, bundle):
    """A sentence; raises Problem where they are too large together."""
    mebi = [size / 2**20 for size in (tree, bundle, tree + bundle, LIMIT_BYTES)]
    words = "tree {:.1f} MiB, bundle {:.1f} MiB, together {:.1f} of at most {:.0f} MiB".format(*mebi)
    if tree + bundle > LIMIT_BYTES:
        raise Problem(f"too large to travel: {words}")
    return words


def _programs(without_cuda):
    """What is compiled, relative to the build folder."""
    folder = layout.home() / "bin"
    names = [*PROGRAMS, *OF_CUDA]
    lacking = [name for name in names if not (folder / name).exists()]
    if set(lacking) - set(OF_CUDA):
        raise Problem(f"{folder} lacks {', '.join(lacking)}; run script/build")
    if lacking and not without_cuda:
        raise Problem(f"{folder} lacks {', '.join(lacking)}: the build has no CUDA engine (see the "
                      "summary that configuring prints); --without-cuda bundles what there is")
    return [Path("bin") / name for name in names if name not in lacking]


def stage(folder, without_cuda):
    """The bundle as a folder; returns its manifest."""
    build, tests = layout.home(), layout.gpu_tests()
    if not tests:
        raise Problem("no test has the label gpu; configure the build anew")
    compiled = dict.fromkeys([*_programs(without_cuda), *(Path(test["program"]) for test in tests)])
    absent = [str(file) for file in compiled if not (build / file).exists()]
    if absent:
        raise Problem(f"not built: {', '.join(absent)}; run script/build")
    lib = folder / "lib"
    lib.mkdir(parents=True)
    for name, file in libraries.to_bundle([build / file for file in compiled]).items():
        shutil.copy2(file.resolve(), lib / name)
    for file in compiled:
        (folder / file).parent.mkdir(exist_ok=True)
        shutil.copy2(build / file, folder / file)
        run(["strip", folder / file], 60)  # compute-sanitizer and ncu read the device's code
    everything = [*(folder / file for file in compiled), *sorted(lib.iterdir())]
    lacking = libraries.missing(everything, lib)
    if lacking:
        raise Problem("; ".join(lacking))
    manifest = {"schema": 2, "commit": layout.commit(), "tests": tests,
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "glibc": libraries.glibc_needed(everything),
                "cuda": (folder / "bin" / layout.MODULE).exists(),
                "libraries": sorted(path.name for path in lib.iterdir())}
    store.write(folder / layout.MANIFEST, manifest)
    return manifest


def make(target, without_cuda=False, log=print):
    """Writes the packed bundle to `target`; returns its manifest."""
    folder = ROOT / "build/gpu-check-stage" / NAME
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        manifest = stage(folder, without_cuda)
        target.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(target, "wb", filters=FILTERS) as packed, \
                tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, NAME)
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    log(f"{target}: {len(manifest['tests'])} tests, {len(manifest['libraries'])} libraries, needs "
        f"glibc {manifest['glibc']} or newer"
        + ("" if manifest["cuda"] else "; WITHOUT the CUDA module"))
    log(sizes(tree_bytes(), target.stat().st_size))
    return manifest
