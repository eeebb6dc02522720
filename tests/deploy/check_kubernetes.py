"""Part of script/deploy-check: the manifests, as `kubectl kustomize` makes them, with and without
their components, are valid for two versions of Kubernetes, and fit each other."""
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

SOURCE_DIR = Path(__file__).resolve().parents[2]
VALIDATE = Path(sys.executable).parent / "kubernetes-validate"
NAME = {"app.kubernetes.io/name": "sparsefw"}


def render(overlay, components, folder):
    """Manifests by kind."""
    (folder / "deploy").symlink_to(SOURCE_DIR / "deploy")
    (folder / "all").mkdir()
    (folder / "all/kustomization.yaml").write_text(yaml.safe_dump({
        "resources": [f"../deploy/kubernetes/overlays/{overlay}"],
        "components": [f"../deploy/kubernetes/components/{one}" for one in components]}))
    text = subprocess.run(["kubectl", "kustomize", folder / "all"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    (folder / "out.yaml").write_text(text)
    for version in ("1.28", "1.32"):
        subprocess.run([VALIDATE, "--strict", "-k", version, folder / "out.yaml"], check=True)
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def check(kinds, overlay, components):
    assert len(kinds) == 6 + 2 * ("monitoring" in components), sorted(kinds)
    pods = kinds["StatefulSet"]["spec"]["template"]
    assert pods["metadata"]["labels"] == NAME
    for selector in (kinds["StatefulSet"]["spec"]["selector"]["matchLabels"], kinds["Service"]["spec"]["selector"],
                     kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
                     kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
        assert selector == NAME, selector
    clients = kinds["NetworkPolicy"]["spec"]["ingress"][0]["from"]
    assert clients == [{"podSelector": {"matchLabels": {"sparsefw.io/client": "true"}}}], clients
    [container] = pods["spec"]["containers"]
    assert container["image"].endswith(":cuda" if overlay == "gpu" else ":latest"), container["image"]
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (overlay == "gpu")
    settings = kinds["ConfigMap"]["data"]
    assert container["envFrom"] == [{"configMapRef": {"name": kinds["ConfigMap"]["metadata"]["name"]}}]
    assert settings.get("SPARSEFW_DEVICE") == ("cuda" if overlay == "gpu" else None)
    assert settings["SPARSEFW_INSECURE"] == ("false" if "tls" in components else "true")
    mounts = {one["name"] for one in container["volumeMounts"]}
    assert mounts == {"state"} | ({"tls", "access"} if "tls" in components else set())
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert ("exec" in container[probe], "grpc" in container[probe]) == \
            ("tls" in components, "tls" not in components), probe
    assert container["securityContext"]["readOnlyRootFilesystem"] and pods["spec"]["securityContext"]["runAsNonRoot"]
    flags = (SOURCE_DIR / "docs/cli.md").read_text()
    for variable in settings:
        assert f"`--{variable.removeprefix('SPARSEFW_').lower().replace('_', '-')}" in flags, variable


def main():
    for overlay in ("cpu", "gpu"):
        for components in ([], ["tls"], ["tls", "monitoring"]):
            with tempfile.TemporaryDirectory() as folder:
                check(render(overlay, components, Path(folder)), overlay, components)


if __name__ == "__main__":
    main()
