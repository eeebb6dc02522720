"""Usage: debian_sbom.py VERSION PROGRAMS BOOTSTRAP
Prints a CycloneDX bill of the Debian packages in the programs, from dpkg's data.

"loaded" packages own a library that a program loads; "compiled in" ones are the -dev packages that BOOTSTRAP
installs for a build, whose headers and static libraries may be part of a program.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def owner(path):
    """The package of a file; Debian 12 records some of /usr/lib as /lib."""
    real = os.path.realpath(path)
    for name in (path, real, real.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise SystemExit(f"debian_sbom: no package owns {path}")


def loaded(programs):
    libraries = {
        match for path in sorted(programs.glob("sparsefw-*")) if path.name in ("sparsefw-server", "sparsefw-cli")
        for match in re.findall(r" => (/\S+)", run("ldd", path))}
    return {owner(library) for library in libraries}


def compiled_in(bootstrap):
    needed = bootstrap.read_text(encoding="utf-8").partition("# tests and benchmarks")[0]
    return set(re.findall(r"\S+-dev\b", needed.partition("packages=(")[2])) - {"dpkg-dev"}


def component(package, use):
    version, arch, source = run(
        "dpkg-query", "-W", "-f", "${Version} ${Architecture} ${source:Package}", package).split(" ")
    distro = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(encoding="utf-8")))
    qualifiers = {"arch": arch, "distro": f"{distro['ID']}-{distro['VERSION_ID']}"}
    purl = PackageURL("deb", distro["ID"], package, version, qualifiers)
    properties = [Property(name="sparsefw:use", value=use), Property(name="debian:source", value=source)]
    return Component(name=package, version=version, type=ComponentType.LIBRARY, bom_ref=str(purl), purl=purl,
                     properties=properties)


def main():
    version, programs, bootstrap = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    own = Component(name="sparsefw", version=version, type=ComponentType.APPLICATION, bom_ref=f"sparsefw@{version}")
    bom = Bom()
    bom.metadata.component = own
    uses = dict.fromkeys(sorted(compiled_in(bootstrap)), "compiled in") | dict.fromkeys(loaded(programs), "loaded")
    parts = [component(package, use) for package, use in sorted(uses.items())]
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(own, parts)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        raise SystemExit(f"debian_sbom: {wrong}")
    print(text)


if __name__ == "__main__":
    main()
