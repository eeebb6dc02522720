"""Part of script/deploy-check: deploy/ray/rayjob.yaml. What Kubernetes itself defines is checked strictly against
its schemas: the volume claim, the network policy, and every pod that KubeRay will make, as a Pod. The schemas of
KubeRay are not in a package: its fields are compared with the names in its API reference (1.6)."""
import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml

RAY = Path(__file__).resolve().parents[2] / "deploy/ray"
VERSIONS = ("1.28", "1.32")
JOB = {"activeDeadlineSeconds", "backoffLimit", "entrypoint", "rayClusterSpec", "runtimeEnvYAML", "submissionMode",
       "shutdownAfterJobFinishes", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished"}
CLUSTER = {"authOptions", "enableInTreeAutoscaling", "headGroupSpec", "rayVersion", "workerGroupSpecs"}
HEAD = {"rayStartParams", "serviceType", "template"}
WORKERS = {"groupName", "maxReplicas", "minReplicas", "rayStartParams", "replicas", "template"}


def known(found, names, where):
    assert found.keys() <= names, f"{where}: KubeRay knows no {found.keys() - names}"


def pods(job):
    """(name, the pod that KubeRay makes of a template)"""
    cluster = job["spec"]["rayClusterSpec"]
    yield "submitter", job["spec"]["submitterPodTemplate"]
    yield "head", cluster["headGroupSpec"]["template"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group["template"]


def check_structure(job):
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    known(job["spec"], JOB, "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    known(cluster, CLUSTER, "RayCluster")
    known(cluster["headGroupSpec"], HEAD, "headGroupSpec")
    for group in cluster["workerGroupSpecs"]:
        known(group, WORKERS, group["groupName"])
        assert 0 < group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        # They become flags of `ray start`.
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    # Kueue takes no other RayJob than one that gives its cluster back.
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert job["spec"]["shutdownAfterJobFinishes"] is True


def check_meaning(claim, policy, job):
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    version = tuple(map(int, cluster["rayVersion"].split(".")))
    assert version >= (2, 52, 0), "token authentication"
    assert f"rayproject/ray:{cluster['rayVersion']}-" in (RAY / "Containerfile").read_text()
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert policy["spec"]["ingress"][0] == {"from": [{"podSelector": {"matchLabels": labels}}]}
    for name, template in pods(job):
        assert template["metadata"]["labels"] == labels, name
        spec = template["spec"]
        [container] = spec["containers"]
        assert container["image"].endswith(f":{cluster['rayVersion']}"), name
        assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
        assert container["resources"]["requests"] == container["resources"]["limits"], name
        volumes = {one["name"]: one for one in spec.get("volumes", [])}
        mounts = {one["mountPath"]: volumes[one["name"]] for one in container.get("volumeMounts", [])}
        assert set(volumes) == {one["name"] for one in mounts.values()}
        assert ("emptyDir" in mounts.get("/spill", {})) == (name != "submitter"), name
        claims = [one["persistentVolumeClaim"]["claimName"] for one in volumes.values() if "persistentVolumeClaim" in one]
        # One reader and writer: the driver.
        assert claims == ([claim["metadata"]["name"]] if name == "head" else []), name
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["rayStartParams"]["object-spilling-directory"] == "/spill"
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["sparsefw", "prune-model"] and words[-2:] == ["--server", "ray"]
    flags = (RAY.parents[1] / "docs/python.md").read_text()
    for word in words:
        assert not word.startswith("--") or re.search(rf"{word}\b", flags), word
    assert all(word.startswith("/models/") for word in words if "/" in word)


def main():
    documents = list(yaml.safe_load_all((RAY / "rayjob.yaml").read_text()))
    claim, policy, job = documents
    checked = [claim, policy] + [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
        for name, template in pods(job)]
    for one in checked:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    check_structure(job)
    check_meaning(claim, policy, job)
    print(f"{len(checked)} objects of deploy/ray")


if __name__ == "__main__":
    sys.exit(main())
