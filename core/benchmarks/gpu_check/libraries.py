"""Which shared libraries a program needs, and which of them a bundle brings along."""
import re
from pathlib import Path

from gpu_check.layout import Problem
from harness.process import ProgramError, run

# The target has its own glibc: it belongs to its loader and its kernel.
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nsl|nss_\w+|"
                   r"BrokenLocale|c_malloc_debug|thread_db))\.so")
# CUDA's come with the driver and the toolkit of the target.
CUDA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|cusolver|cusparse|nv[a-zA-Z0-9_-]*)\.so")
# Opened by name at run time, by a library that lies beside them; it does without where they lack.
OPENED_BY = {"libtbb.so.12": ("libtbbmalloc.so.2",)}
VERSION = re.compile(r"\bGLIBC_(\d+)\.(\d+)")


def _output(command):
    try:
        return run(command, 60).out
    except ProgramError as error:
        raise Problem(f"{command[0]} failed: {error}") from None


def needed(path):
    return re.findall(r"^\s+NEEDED\s+(\S+)", _output(["objdump", "-p", str(path)]), re.MULTILINE)


def resolved(path):
    """{name: file}, everything that the loader finds for a program, directly or not."""
    found = {}
    for line in _output(["ldd", str(path)]).splitlines():
        match = re.match(r"^\s+(\S+) => (\S+) \(", line)
        if match:
            found[match[1]] = Path(match[2])
        elif "=> not found" in line and not CUDA.match(line.strip()):
            raise Problem(f"{path}: {line.strip()}")
    return found


def comes_along(name):
    return not GLIBC.match(name) and not CUDA.match(name)


def to_bundle(programs):
    """{name: file} of all libraries that the programs need apart from glibc's and CUDA's."""
    found = {}
    for program in programs:
        found.update(resolved(program))
    for name, opened in OPENED_BY.items():
        if name in found:
            beside = {extra: found[name].parent / extra for extra in opened}
            found.update({extra: file for extra, file in beside.items() if file.exists()})
    return {name: file for name, file in found.items() if comes_along(name)}


def glibc_needed(files):
    """The newest symbol version of glibc that any of the files asks for: "2.36"."""
    newest = (2, 0)
    for file in files:
        for line in _output(["objdump", "-T", str(file)]).splitlines():
            match = VERSION.search(line)
            if match and "*UND*" in line:
                newest = max(newest, (int(match[1]), int(match[2])))
    return f"{newest[0]}.{newest[1]}"


def missing(files, lib_folder):
    """Sentences: names that a file needs and that neither the bundle nor glibc nor CUDA has."""
    return [f"{file.name} needs {name}" for file in files for name in needed(file)
            if comes_along(name) and not (lib_folder / name).exists()]
