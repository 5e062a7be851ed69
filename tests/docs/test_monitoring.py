"""The alert rules and the dashboard use metrics, labels and values that the package has."""

import json
import re

import pytest
from prometheus_client import CollectorRegistry

from django_redlock.metrics import prometheus
from tests.docs.pages import DOCS

RULES = (DOCS / "monitoring" / "rules.yml").read_text()
DASHBOARD = json.loads((DOCS / "monitoring" / "grafana.json").read_text())
QUERIES = re.findall(r"^ +expr: (.+)$", RULES, re.MULTILINE) + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
_METRIC = re.compile(r"\bredlock_\w+")
_LABELS = re.compile(r"by \(([\w, ]+)\)|(\w+)[!=]~?\"")
REASONS = re.compile(r'reason="(\w+)"')


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """The names of all samples in a registry with the package's metrics, and the labels of each."""
    registry = CollectorRegistry()
    prometheus.install(registry)
    for each in registry._collector_to_names:
        each.labels(*each._labelnames)  # a metric without a series has no sample
    found: dict[str, set[str]] = {"redlock_held": {"backend", "kind"}}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_query_names_what_exists(query, samples):
    """Each metric of a query is exported, with each label that the query selects or groups by."""
    metrics = _METRIC.findall(query)
    assert metrics
    asked = {label.strip() for group, label in _LABELS.findall(query) for label in (group or label).split(",")}
    for metric in metrics:
        assert metric in samples
        assert asked <= samples[metric]


def test_reasons_are_documented():
    """A rule that selects a reason selects one that the table of metrics lists."""
    row = (DOCS / "reference" / "metrics.rst").read_text().partition("``redlock_refusals_total``")[2][:300]
    asked = {reason for query in QUERIES for reason in REASONS.findall(query)}
    assert asked
    assert asked <= set(re.findall(r"``(\w+)``", row))


def test_every_alert_has_a_runbook_entry():
    runbook = (DOCS / "howto" / "runbook.rst").read_text()
    alerts = re.findall(r"alert: (\w+)", RULES)
    assert alerts
    assert [alert for alert in alerts if not re.search(rf"^{alert}\b.*\n-+$", runbook, re.MULTILINE)] == []
