"""Packs everything that a machine with a GPU needs into one file."""
import datetime
import shutil
import tarfile
from pathlib import Path

from gpu_check import layout, libraries
from gpu_check.layout import ROOT, Problem
from harness import store
from harness.process import run

NAME = "sparsefw-gpu-check"
LIMIT_BYTES = 64 << 20
DEFAULT = ROOT / f"build/{NAME}.tar.gz"
PLAIN = ["script/gpu-check", "script/bench-gpu", "core/benchmarks/gpu", "core/benchmarks/gpu_check",
         "core/benchmarks/harness", "core/benchmarks/peers", "docs/gpu-check.md", "LICENSE",
         str(layout.FIXTURE)]


def _programs(without_cuda):
    """What is compiled: paths relative to the root."""
    folder = layout.bin_folder()
    found = sorted(path for path in folder.glob("sparsefw-*") if path.is_file())
    wanted = {"sparsefw-server", "sparsefw-cli", "sparsefw-bench-device", "sparsefw-bench-layer"}
    lacking = wanted - {path.name for path in found}
    if lacking:
        raise Problem(f"{folder} lacks {', '.join(sorted(lacking))}; run script/build")
    module = folder / layout.MODULE
    if module.exists():
        found.append(module)
    elif not without_cuda:
        raise Problem(f"{module} does not exist: the build has no CUDA engine (see the summary "
                      "that configuring prints); --without-cuda bundles what there is")
    return [path.relative_to(ROOT) for path in found]


def _copy(files, folder):
    for file in files:
        source, target = ROOT / file, folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, target)


def _strip(files):
    """Only what no one reads from a trace of calls: names of functions stay."""
    for file in files:
        run(["strip", "--strip-debug", file], 60, check=False)


def stage(folder, without_cuda):
    """The bundle as a folder; returns its manifest."""
    tests = layout.gpu_tests()
    if not tests:
        raise Problem("no test has the label gpu; configure the build anew")
    compiled = [*_programs(without_cuda), *(Path(test["program"]) for test in tests)]
    absent = [str(file) for file in compiled if not (ROOT / file).exists()]
    if absent:
        raise Problem(f"not built: {', '.join(absent)}; run script/build")
    _copy([*PLAIN, *compiled], folder)
    lib = folder / "build/lib"
    lib.mkdir(parents=True)
    for name, file in libraries.to_bundle([ROOT / file for file in compiled]).items():
        shutil.copy2(file.resolve(), lib / name)
    staged = [folder / file for file in dict.fromkeys(compiled)]
    _strip(staged)
    everything = [*staged, *sorted(lib.iterdir())]
    lacking = libraries.missing(everything, lib)
    if lacking:
        raise Problem("; ".join(lacking))
    manifest = {"schema": 1, "commit": layout.commit(), "tests": tests,
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "glibc": libraries.glibc_needed(everything),
                "cuda": (folder / "build/bin" / layout.MODULE).exists(),
                "libraries": sorted(path.name for path in lib.iterdir())}
    store.write(folder / layout.MANIFEST, manifest)
    return manifest


def make(target, without_cuda=False, log=print):
    """Writes the packed bundle to `target`; returns its manifest."""
    folder = ROOT / "build/gpu-check" / NAME
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        manifest = stage(folder, without_cuda)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:gz", compresslevel=9) as archive:
            archive.add(folder, NAME)
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    size = target.stat().st_size
    log(f"{target}: {size / 2**20:.1f} MiB, {len(manifest['tests'])} test programs, "
        f"{len(manifest['libraries'])} libraries, needs glibc {manifest['glibc']} or newer"
        + ("" if manifest["cuda"] else "; WITHOUT the CUDA module"))
    if size > LIMIT_BYTES:
        raise Problem(f"{target} has {size} bytes; at most {LIMIT_BYTES} are allowed")
    return manifest


def unpack(archive, folder):
    with tarfile.open(archive) as packed:
        packed.extractall(folder)  # our own, made a moment ago
    return Path(folder) / NAME
