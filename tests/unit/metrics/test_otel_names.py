"""Our names for OpenTelemetry are those of its published package of semantic conventions."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import (
    error_attributes,
    exception_attributes,
    server_attributes,
)
from opentelemetry.semconv.schemas import Schemas

from tampu.metrics import otel
from tampu.metrics.otel import OpenTelemetry

NAMES = {
    otel.SYSTEM: messaging.MESSAGING_SYSTEM,
    otel.OPERATION_NAME: messaging.MESSAGING_OPERATION_NAME,
    otel.OPERATION_TYPE: messaging.MESSAGING_OPERATION_TYPE,
    otel.DESTINATION: messaging.MESSAGING_DESTINATION_NAME,
    otel.MESSAGE_ID: messaging.MESSAGING_MESSAGE_ID,
    otel.CLIENT_ID: messaging.MESSAGING_CLIENT_ID,
    otel.GROUP: messaging.MESSAGING_CONSUMER_GROUP_NAME,
    otel.BATCH_COUNT: messaging.MESSAGING_BATCH_MESSAGE_COUNT,
    otel.SERVER_ADDRESS: server_attributes.SERVER_ADDRESS,
    otel.SERVER_PORT: server_attributes.SERVER_PORT,
    otel.ERROR_TYPE: error_attributes.ERROR_TYPE,
    otel.EXCEPTION_TYPE: exception_attributes.EXCEPTION_TYPE,
    otel.EXCEPTION_MESSAGE: exception_attributes.EXCEPTION_MESSAGE,
    otel.EXCEPTION_STACKTRACE: exception_attributes.EXCEPTION_STACKTRACE,
    otel.SENT: messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES,
    otel.CONSUMED: messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES,
    otel.DURATION: messaging_metrics.MESSAGING_PROCESS_DURATION,
}
OWN = (otel.JOB_NAME, otel.JOB_ATTEMPT, otel.JOB_WAIT_MS, otel.SCHEDULE_KEY)


@pytest.mark.parametrize(("ours", "theirs"), NAMES.items())
def test_a_name_is_that_of_the_conventions(ours: str, theirs: str) -> None:
    assert ours == theirs


def test_every_name_that_is_not_compared_is_below_our_own_prefix() -> None:
    dotted = {
        value
        for name, value in vars(otel).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z_.]+\.[a-z_]+", value)
    }
    assert dotted == {*NAMES, *OWN}
    assert all(name.startswith("messaging.tampu.") for name in OWN)


def test_our_own_names_are_none_of_the_conventions() -> None:
    theirs = {value for value in vars(messaging).values() if isinstance(value, str)}
    assert not theirs & set(OWN)
    assert not [name for name in theirs if name.startswith("messaging.tampu.")]


def test_the_types_of_operation_are_those_of_the_conventions() -> None:
    values = messaging.MessagingOperationTypeValues
    assert (values.SEND.value, values.PROCESS.value) == (otel.SEND, otel.PROCESS)


@pytest.mark.skipif(
    not hasattr(Schemas, "V1_44_0"), reason="an old package knows no schema of today"
)
def test_the_schema_is_one_that_was_published() -> None:
    assert otel.SCHEMA_URL in {each.value for each in Schemas}


@pytest.mark.parametrize(
    ("name", "create"),
    [
        (otel.SENT, messaging_metrics.create_messaging_client_sent_messages),
        (otel.CONSUMED, messaging_metrics.create_messaging_client_consumed_messages),
        (otel.DURATION, messaging_metrics.create_messaging_process_duration),
    ],
)
def test_a_metric_has_the_kind_unit_and_description_of_the_conventions(
    name: str, create: Callable[[Any], Any]
) -> None:
    assert metric_of(name, lambda meters: OpenTelemetry(meter_provider=meters)) == metric_of(
        name, lambda meters: create(meters.get_meter("theirs"))
    )


def metric_of(name: str, create: Callable[[MeterProvider], Any]) -> tuple[object, ...]:
    """What an exporter sees of a metric."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    made = create(meters)
    if isinstance(made, OpenTelemetry):
        made = {otel.SENT: made.sent, otel.CONSUMED: made.consumed, otel.DURATION: made.duration}[
            name
        ]
    (made.record if hasattr(made, "record") else made.add)(1)
    data: Any = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    meters.shutdown()
    return metric.name, metric.unit, metric.description, type(metric.data)
