"""Log records that say which job they belong to."""

import logging
from contextvars import copy_context

from tampu.job import enter_job, enter_queue
from tampu.metrics import JobLogFilter
from tampu.metrics.logs import job_fields
from tampu.testing import make_job


def filtered(name: str = "shop", **extra: object) -> dict[str, object]:
    """The fields of a record that has passed the filter."""
    record = logging.makeLogRecord({"name": name, "msg": "hello", **extra})
    assert JobLogFilter().filter(record) is True
    return {field: vars(record)[field] for field in job_fields() if field in vars(record)}


def test_a_record_outside_of_a_job_stays_as_it_is() -> None:
    assert copy_context().run(job_fields) == {}
    record = logging.makeLogRecord({"name": "shop"})
    before = dict(vars(record))
    assert JobLogFilter().filter(record) is True
    assert vars(record) == before


def test_a_record_inside_of_a_job_has_its_fields() -> None:
    def inside() -> None:
        enter_queue("emails")
        enter_job(make_job(name="greet", id="j1", attempt=3))
        expected = {"job_id": "j1", "job_name": "greet", "queue": "emails", "attempt": 3}
        assert filtered() == expected
        assert filtered(job_id="mine") == expected | {"job_id": "mine"}
        assert filtered("tampu_shop") == expected
        assert filtered("tampu.consumer.reporter") == {}

    copy_context().run(inside)
