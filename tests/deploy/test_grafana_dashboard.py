"""The Grafana dashboard asks for metrics and labels that the service has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.rig.site import Owner

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

DASHBOARD: Any = json.loads(
    (Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json").read_text()
)
TARGETS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]
VARIABLES = [
    variable["definition"]
    for variable in DASHBOARD["templating"]["list"]
    if "definition" in variable
]

_METRIC = re.compile(r"\b(?:outrider|process)_\w+")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPS = re.compile(r"\bby \(([^)]*)\)")
_SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
_OF_PROMETHEUS = {"job", "instance", "le"}


async def test_every_query_names_what_the_service_exports(owner: Owner) -> None:
    await owner.api.get("/api/v1/daemons")
    text = (await owner.site.client().get("/metrics")).text
    families = list(text_string_to_metric_families(text))
    exported = {
        family.name + suffix for family in families for suffix in _SUFFIXES.get(family.type, [""])
    }
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    labels |= {"outcome"} | _OF_PROMETHEUS  # `outcome` has no sample before the first webhook
    assert len(TARGETS) > 15
    for title, query in [*TARGETS, *(("a variable", query) for query in VARIABLES)]:
        names = _METRIC.findall(query)
        assert names, title
        assert set(names) <= exported, title
        used = {name for group in _GROUPS.findall(query) for name in group.split(", ")}
        assert used | set(_LABEL.findall(query)) <= labels, title
        assert query.count("(") == query.count(")"), title
        assert query.count("{") == query.count("}"), title


async def test_every_metric_of_the_service_has_a_unit_or_is_a_number(owner: Owner) -> None:
    """As Prometheus's naming convention asks: base units, `_total` for counters only."""
    text = (await owner.site.client().get("/metrics")).text
    for family in text_string_to_metric_families(text):
        if family.name.startswith("outrider_") and not family.name.endswith("_created"):
            assert family.documentation, family.name
            assert not re.search(r"_(ms|millis|milliseconds|kb|mb|count|total)$", family.name)
            if family.type == "histogram":
                assert family.name.endswith("_seconds"), family.name
