"""One task of a queue: how long it runs and waits, and how often it fails."""

from collections.abc import Mapping
from typing import Final

from tampu.admin.browsing import slowest_attempts
from tampu.dashboard.charts import HeatColumns, Series, heat_map, line_chart, stacked_bars
from tampu.dashboard.history import Trend, read_task
from tampu.dashboard.page import Page, View, bad_request
from tampu.dashboard.pages.overview import choose_period, period_choices, wait_chart
from tampu.dashboard.render import format_count, format_seconds
from tampu.metrics.history import SlowAttempt
from tampu.timing.rule import interval_words

_FRESH_S: Final = 5.0


async def load(view: View) -> Mapping[str, object]:
    """The task that the query names. One that never ran has empty charts."""
    keys = await view.queue("queue")
    name = view.params.get("name", "")
    if not name:
        raise bad_request("name must be the name of a task.")
    trend = await read_task(view.source, keys, name, period=await choose_period(view))

    async def read_slowest() -> list[SlowAttempt]:
        return await slowest_attempts(await view.source.lane(keys), keys, name)

    return {
        "slowest": await view.source.cache(("slowest", keys.name, name), _FRESH_S, read_slowest),
        "queue": keys.name,
        "task": name,
        "total": trend.total,
        "charts": task_charts(trend),
        **period_choices(view, trend),
    }


def task_charts(trend: Trend) -> list[object]:
    """Run times as a heat map, wait, attempts."""
    frame, runs = trend.frame, trend.run
    times = [
        Series("p50", "blue", [each.p50 for each in runs]),
        Series("p95", "violet", [each.p95 for each in runs]),
        Series("p99", "red", [each.p99 for each in runs]),
    ]
    heat = HeatColumns(columns=trend.run_powers, label=power_label)
    return [
        heat_map("Run time", frame, heat, figures=times, unit=format_seconds),
        line_chart("Run time, percentiles", frame, times, unit=format_seconds),
        wait_chart(trend),
        stacked_bars(
            f"Attempts per {interval_words(trend.period.step_s * 1000)}",
            frame,
            [Series("Done", "blue", trend.done), Series("Failed", "red", trend.failed)],
            unit=format_count,
        ),
    ]


def power_label(power: int) -> str:
    """The upper end of a row of the heat map: a power of two of a microsecond."""
    return format_seconds(2.0**power / 1e6)


PAGES = (
    Page(
        path="task",
        template="task.html",
        load=load,
        under="queues",
        live=("tiles", "charts", "slowest"),
    ),
)
