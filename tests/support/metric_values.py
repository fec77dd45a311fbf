"""What a registry exports, as one dict: `{"tenure_up": {(): 1.0}, "tenure_nodes": {("alive",): 2.0}}`."""

from typing import Any


def exported(registry: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """The labels of a metric come in the order of the catalogue, without those of a histogram."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found
