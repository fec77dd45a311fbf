"""What comes with the metrics: alert rules, a dashboard and a page of reference. Each metric and label that they name exists."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tenure import metrics
from tenure.metrics import catalogue

ROOT = Path(__file__).parents[2]
KNOWN = {metric.name: metric for metric in catalogue.ALL}
OF_PROMETHEUS = {"job", "instance", "le"}
FUNCTIONS = {
    "abs",
    "absent",
    "count",
    "histogram_quantile",
    "label_values",
    "last_over_time",
    "max",
    "rate",
    "sum",
    "time",
    "vector",
}
WORDS = {"and", "by", "on", "or", "unless", "d", "w", "m"}


def named(expression):
    """The metrics that an expression names, and the labels that it selects, groups or joins by."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    labels = {
        label for inside in re.findall(r"\{([^}]*)\}", bare) for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)
    }
    labels |= {one.strip() for inside in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare) for one in inside.split(",")}
    names = set(re.findall(r"\btenure_\w+", bare))
    rest = re.sub(r"\{[^}]*\}|\b(?:by|on)\s*\([^)]*\)|\[[^\]]*\]", "", bare)
    words = set(re.findall(r"\b[a-z_]\w*", rest)) - names - FUNCTIONS - WORDS
    return names, labels, words


def asked(expression):
    """Each metric that an expression names, with the labels that it selects by and groups the metric by."""
    for by, name, inside in re.findall(
        r"(?:\bby\s*\(([^)]*)\)\s*\(\s*(?:\w+\(\s*)*)?\b(tenure_\w+)(?:\{([^}]*)\})?", expression
    ):
        grouped = {one.strip() for one in by.split(",") if one}
        yield name, grouped | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', inside)))


def left(expression):
    """The labels that the values of an expression have: those of its first grouping, or all of its metric."""
    if by := re.search(r"\bby\s*\(([^)]*)\)", expression):
        return {one.strip() for one in by[1].split(",")}
    return {"job", "instance"} | {label for name, _ in asked(expression) for label in KNOWN[name].labels}


def check(expression):
    names, labels, words = named(expression)
    assert names or expression.startswith("vector"), expression
    metrics_ = {re.sub(r"_(bucket|count|sum)$", "", name) if name not in KNOWN else name for name in names}
    assert metrics_ <= KNOWN.keys(), f"no such metric: {metrics_ - KNOWN.keys()} in {expression}"
    for name, found in asked(expression):
        own = OF_PROMETHEUS | set(KNOWN[re.sub(r"_bucket$", "", name)].labels)
        assert found <= own, f"{name} has no such label: {found - own} in {expression}"
    having = OF_PROMETHEUS | {label for name in metrics_ for label in KNOWN[name].labels}
    assert labels <= having, f"no such label: {labels - having} in {expression}"
    assert words <= having | {""}, f"what is {words - having} in {expression}?"
    assert expression.count("(") == expression.count(")")


RULES = yaml.safe_load(metrics.rules())["groups"][0]["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_what_exists_and_says_what_to_do(rule):
    check(rule["expr"])
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description"} == set(rule["annotations"])
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= left(rule["expr"])


def test_each_alert_has_one_rule():
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) == 14


@pytest.mark.parametrize(
    "wrong",
    [
        "tenure_job_overdue > 0",
        'tenure_nodes{kind="alive"}',
        "max by (name) (tenure_up)",
        "maximum(tenure_up)",
        'max by (job) (tenure_up) > max by (state) (tenure_planner_info) and tenure_nodes{state="alive"}',
        'tenure_up{queue="a"} and on (job) max by (job, queue) (tenure_runs_open)',
    ],
)
def test_what_does_not_exist_is_noticed(wrong):
    with pytest.raises(AssertionError):
        check(wrong)


BOARD = json.loads(metrics.dashboard())


def targets():
    return [
        (panel["title"], target["expr"], target.get("legendFormat", ""))
        for panel in BOARD["panels"]
        for target in panel["targets"]
    ]


@pytest.mark.parametrize(("title", "expression", "legend"), targets())
def test_a_panel_names_what_exists(title, expression, legend):
    assert set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)) <= left(expression)
    check(expression.replace("$__rate_interval", "5m").replace(" or vector(0)", ""))


def test_the_dashboard_can_be_imported_anywhere():
    assert "id" not in BOARD
    assert "uid" not in BOARD
    assert [given["type"] for given in BOARD["__inputs"]] == ["datasource"]
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "job_name"]
    for one in (variables["job"], variables["job_name"]):
        asked_for, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"]).groups()
        check(f"max by ({label}) ({asked_for})")
    for panel in BOARD["panels"]:
        assert "id" not in panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert panel["description"]
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    places = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in BOARD["panels"]
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(places) == len(set(places)), "panels overlap"


def test_the_table_of_jobs_renames_the_value_of_each_of_its_queries():
    [table] = [panel for panel in BOARD["panels"] if panel["type"] == "table"]
    words = table["transformations"][1]["options"]
    values = {f"Value #{target['refId']}" for target in table["targets"]}
    assert values == {name for name in (*words["renameByName"], *words["excludeByName"]) if name.startswith("Value")}
    columns = {name for name in (*words["renameByName"], *words["excludeByName"]) if not name.startswith("Value")}
    assert columns - {"Time"} <= {label for target in table["targets"] for label in left(target["expr"])}
    assert {one["matcher"]["options"] for one in table["fieldConfig"]["overrides"]} <= set(
        words["renameByName"].values()
    )


def rows(metrics_):
    for metric in metrics_:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |"


def test_the_page_of_reference_has_each_metric_and_nothing_else():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    written = [line for line in page.splitlines() if line.startswith("| `tenure_")]
    assert written == [*rows(catalogue.OF_STORE), *rows(catalogue.OF_PROCESS)]
