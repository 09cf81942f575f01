"""Text for Prometheus: read by its own parser, whatever the names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tampu.metrics.history import Figures, Histogram, Totals, bound_s, bucket_of
from tampu.metrics.prometheus import FAMILIES, QueueMetrics, fold, metrics_text
from tampu.wire.dead import BuryReason
from tampu.wire.history import Gauges
from tampu.wire.outbox import OutboxFigures
from tests.metric_samples import samples, value

NAMES = st.text(max_size=20)
TIMES = st.dictionaries(st.integers(0, 148), st.integers(1, 10**9), max_size=20)


def known(queue: str = "emails", **tasks: Figures) -> QueueMetrics:
    return QueueMetrics(queue, Totals(tasks), Gauges(), 0)


def test_every_metric_is_there_with_its_type_even_without_a_queue() -> None:
    families = {family.name: family for family in text_string_to_metric_families(metrics_text([]))}
    for each in FAMILIES:
        name = each.name.removesuffix("_total") if each.kind == "counter" else each.name
        assert families.pop(name).type == each.kind
    assert families == {}


def test_each_value_stands_under_its_labels() -> None:
    figures = Figures(done=7, failed=3, retried=2, dead=1, snoozed=4, cancelled=5)
    gauges = Gauges(
        waiting=11,
        active=12,
        delayed=13,
        dead=14,
        oldest_ms=1500,
        workers=9,
        slots=20,
        busy=8,
        in_lines=10,
    )
    totals = Totals({"send": figures}, unknown=6, dead={"expired": 1}, missed=15)
    outboxes = {"shop": OutboxFigures(16, 17, 2500, 18, 19, age_ms=500)}
    text = metrics_text([QueueMetrics("emails", totals, gauges, 2, outboxes)])

    def told(name: str, **labels: str) -> float:
        return value(text, f"tampu_{name}", queue="emails", **labels)

    for outcome in ("done", "failed", "retried", "dead", "snoozed", "cancelled"):
        assert told("jobs_total", task="send", outcome=outcome) == getattr(figures, outcome)
    for state in ("waiting", "active", "delayed", "dead"):
        assert told("queue_jobs", state=state) == getattr(gauges, state)
    assert told("queue_in_lines") == 10
    assert told("queue_oldest_seconds") == 1.5
    assert told("workers") == 2
    assert (told("slots", state="busy"), told("slots", state="free")) == (8, 12)
    assert told("dead_total", reason="expired") == 1
    assert told("schedule_missed_total") == 15
    assert told("counts_unknown_total") == 6
    assert told("outbox_rows", outbox="shop", state="waiting") == 16
    assert told("outbox_rows", outbox="shop", state="refused") == 17
    assert told("outbox_oldest_seconds", outbox="shop") == 2.5
    assert told("outbox_counted_seconds", outbox="shop") == 0.5
    assert told("outbox_moved_total", outbox="shop") == 18
    assert told("outbox_duplicates_total", outbox="shop") == 19


def test_every_reason_has_a_count_before_the_first_job_is_buried() -> None:
    text = metrics_text([known()])
    told = {dict(labels)["reason"] for name, labels in samples(text) if name == "tampu_dead_total"}
    assert told == {reason.value for reason in BuryReason}


def test_the_samples_of_a_metric_stand_together() -> None:
    text = metrics_text([known("a", x=Figures(done=1)), known("b", x=Figures(done=2))])
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    jobs = [at for at, name in enumerate(names) if name == "tampu_jobs_total"]
    assert jobs == list(range(jobs[0], jobs[0] + 12))


@pytest.mark.parametrize(
    "name",
    [
        'say "hi"',
        "back\\slash",
        "line\nbreak",
        "ends with \\",
        '\\"\n\\n',
        '"} 1\ntampu_workers{queue="forged',
        "",
        "{}",
        "a,b=c",
        "\r",
        "\u2028\u202e",
        "日本 🎈",
    ],
)
def test_a_hostile_name_is_read_as_it_is_and_adds_nothing(name: str) -> None:
    text = metrics_text([known("emails", **{name: Figures(done=3)})])
    plain = metrics_text([known("emails", plain=Figures(done=3))])
    assert value(text, "tampu_jobs_total", queue="emails", task=name, outcome="done") == 3
    assert len(samples(text)) == len(samples(plain))


def test_a_name_that_cannot_be_encoded_spoils_nothing() -> None:
    text = metrics_text([known("emails", **{"a\ud800": Figures(done=3)})])
    assert value(text, "tampu_jobs_total", queue="emails", task="a?", outcome="done") == 3
    text.encode()


@given(names=st.sets(NAMES.filter(lambda name: "\r" not in name), max_size=5), times=TIMES)
def test_any_names_and_any_times_make_a_text_that_can_be_read(
    names: set[str], times: dict[int, int]
) -> None:
    figures = Figures(done=1, run=Histogram(times, 12))
    text = metrics_text([known("q", **dict.fromkeys(names, figures))])
    tasks = {dict(labels).get("task") for _, labels in samples(text)} - {None}
    assert tasks == names


@given(run=TIMES, wait=TIMES, micros=st.integers(0, 10**12))
def test_a_histogram_only_rises_and_ends_at_its_count(
    run: dict[int, int], wait: dict[int, int], micros: int
) -> None:
    text = metrics_text(
        [known("q", t=Figures(run=Histogram(run, micros), wait=Histogram(wait, 0)))]
    )
    for name, times in (("tampu_job_run_seconds", run), ("tampu_job_wait_seconds", wait)):
        buckets = {
            float(dict(labels)["le"]): count
            for (each, labels), count in samples(text).items()
            if each == f"{name}_bucket"
        }
        counts = [buckets[bound] for bound in sorted(buckets)]
        assert counts == sorted(counts)
        assert max(buckets) == float("inf")
        total = value(text, f"{name}_count", queue="q", task="t")
        assert total == counts[-1] == sum(times.values())
        for bound, count in buckets.items():
            fits = sum(n for bucket, n in times.items() if bound_s(bucket) <= bound * (1 + 1e-12))
            assert count == fits
    told = value(text, "tampu_job_run_seconds_sum", queue="q", task="t")
    assert told == pytest.approx(micros / 1e6)


def test_times_are_folded_into_the_power_of_two_above_them() -> None:
    bounds = [2**power for power in range(8, 35)]
    assert [fold({bucket_of(us): 1}).index(1) for us in bounds] == list(range(27))
    assert [fold({bucket_of(us + 1): 1}).index(1) for us in bounds] == list(range(1, 28))
    assert fold({0: 1, 148: 2})[0] == 1
    assert fold({0: 1, 148: 2})[-1] == 2
