"""The manifests of deploy/kubernetes fit Kubernetes' schema, and the service."""

import ipaddress
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from outrider.service.settings import Settings

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "kubernetes"
SCHEMA: Any = json.loads((Path(__file__).parent / "kubernetes_schema.json").read_text())
KUSTOMIZATION: Any = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())
RESOURCES: dict[str, Any] = {
    name: yaml.safe_load((DIRECTORY / name).read_text()) for name in KUSTOMIZATION["resources"]
}
GROUPS = {
    "v1": "core.v1",
    "apps/v1": "apps.v1",
    "policy/v1": "policy.v1",
    "networking.k8s.io/v1": "networking.v1",
}

DEPLOYMENT = RESOURCES["deployment.yaml"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


def environment() -> dict[str, str]:
    """Return the variables that the generated ConfigMap and Secret give the container."""
    (configuration,) = KUSTOMIZATION["configMapGenerator"]
    (secret,) = KUSTOMIZATION["secretGenerator"]
    references = [source[kind]["name"] for source in CONTAINER["envFrom"] for kind in source]
    assert references == [configuration["name"], secret["name"]]
    assert secret["envs"] == ["secret.env"]
    lines = (DIRECTORY / "secret.example.env").read_text().splitlines()
    values = [*configuration["literals"], *(line for line in lines if not line.startswith("#"))]
    return dict(value.split("=", 1) for value in values)


def problems(resource: Any) -> list[str]:
    group = GROUPS[resource["apiVersion"]]
    schema = SCHEMA | {"$ref": f"#/$defs/io.k8s.api.{group}.{resource['kind']}"}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(resource)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", RESOURCES)
def test_a_manifest_fits_the_schema(name: str) -> None:
    assert problems(RESOURCES[name]) == []


def test_the_schema_refuses_what_does_not_exist() -> None:
    wrong = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"atMost": 1}}
    assert len(problems(wrong)) == 1


def test_every_file_is_used() -> None:
    files = {path.name for path in DIRECTORY.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(RESOURCES)
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "deploy/kubernetes/secret.env" in ignored


def test_the_settings_are_the_service_s(monkeypatch: pytest.MonkeyPatch) -> None:
    values = environment()
    names = {f"OUTRIDER_{name.upper()}" for name in Settings.model_fields}
    assert set(values) <= names
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert not settings.is_single_node
    assert settings.port == PORTS["http"]
    assert settings.metrics_address == ("0.0.0.0", PORTS["metrics"])
    assert settings.metrics_token is not None
    rule = RESOURCES["ingress.yaml"]["spec"]["rules"][0]
    assert settings.public_host == rule["host"]
    # docs/deploy.md allows 40 s with the default delay of 5 s.
    assert POD["terminationGracePeriodSeconds"] >= 35 + settings.drain_delay
    assert POD["enableServiceLinks"] is False, "the Service would set OUTRIDER_PORT"


def test_the_probes_ask_for_what_there_is() -> None:
    paths = {
        kind: CONTAINER[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/readyz", "readiness": "/healthz", "liveness": "/healthz"}
    for kind in paths:
        assert CONTAINER[f"{kind}Probe"]["httpGet"]["port"] in PORTS


def test_the_parts_find_each_other() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    service = RESOURCES["service.yaml"]["spec"]
    (port,) = service["ports"]
    assert DEPLOYMENT["selector"]["matchLabels"] == labels == service["selector"]
    assert RESOURCES["disruption.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert port["targetPort"] in PORTS
    (path,) = RESOURCES["ingress.yaml"]["spec"]["rules"][0]["http"]["paths"]
    backend = path["backend"]["service"]
    assert backend["name"] == RESOURCES["service.yaml"]["metadata"]["name"]
    assert backend["port"]["name"] == port["name"]
    assert {image["name"] for image in KUSTOMIZATION["images"]} == {CONTAINER["image"]}


def test_only_the_proxy_and_prometheus_reach_the_pods() -> None:
    policy = RESOURCES["network.yaml"]["spec"]
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    ports = [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]]
    assert ports == [["http"], ["metrics"]]
    assert all(rule["from"] for rule in policy["ingress"])
    proxies = ipaddress.ip_network(environment()["OUTRIDER_TRUSTED_PROXIES"])
    assert proxies.prefixlen >= 24, "the Pods of one host, not those of the cluster"


def test_a_container_has_no_rights() -> None:
    user = re.findall(r"^USER (.+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert [str(POD["securityContext"]["runAsUser"])] == user
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = {volume["name"] for volume in POD["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert volumes == set(mounts)
    assert set(mounts.values()) == {"/var/lib/outrider", "/tmp"}
