"""The samples in a text for Prometheus, as its own parser reads them."""

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


def samples(text: str) -> dict[tuple[str, Labels], float]:
    """Every sample by its name and labels; none occurs twice."""
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            at = (sample.name, frozenset(sample.labels.items()))
            assert at not in found
            found[at] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float:
    """One sample."""
    return samples(text)[name, frozenset(labels.items())]


def counters(text: str) -> dict[tuple[str, Labels], float]:
    """The samples that must never go down."""
    rising = ("_total", "_bucket", "_sum", "_count")
    return {at: number for at, number in samples(text).items() if at[0].endswith(rising)}
