"""From what a page has loaded to HTML: templates, and numbers and times as people read them."""

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context
from markupsafe import Markup

from tampu._version import __version__
from tampu.dashboard.access import Action
from tampu.dashboard.page import Page, View, link
from tampu.util.clock import span_text

STATIC: Final = Path(__file__).parent / "static"
NOTHING: Final = "\N{EN DASH}"
_SHORT: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Renderer:
    """Renders pages. Everything is escaped; templates have no way to run code of others."""

    def __init__(self) -> None:
        env = Environment(
            loader=PackageLoader("tampu.dashboard"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        env.filters |= FILTERS
        env.globals |= {
            "link": link,
            "Action": Action,
            "NOTHING": NOTHING,
            "version": __version__,
            "static": _StaticFiles(STATIC).link,
        }
        env.globals["ui"] = env.get_template("macros.html").module
        self._env = env

    def page(self, page: Page, view: View, data: Mapping[str, object]) -> str:
        """A whole page."""
        return self._env.get_template(page.template).render(self._data(page, view, data))

    def regions(self, page: Page, view: View, data: Mapping[str, object]) -> dict[str, str]:
        """The live regions of a page, by name."""
        template = self._env.get_template(page.template)
        context: Context = template.new_context(dict(self._data(page, view, data)))
        return {name: "".join(template.blocks[name](context)) for name in page.live}

    def problem(
        self, status: int, sentence: str, *, nav: tuple[Page, ...] = (), retry: bool = False
    ) -> str:
        """An error page; with `retry` it tries again by itself."""
        data = {"status": status, "sentence": sentence, "retry": retry, "nav": nav}
        return self._env.get_template("problem.html").render(
            **data, here=None, live_link=None, view=None
        )

    def _data(self, page: Page, view: View, data: Mapping[str, object]) -> Mapping[str, Any]:
        live = link("live", **{**view.params, "of": page.path or "overview"})
        return {
            **data,
            "view": view,
            "nav": view.nav,
            "here": page.path if page.under is None else page.under,
            "live_link": live if page.live else None,
        }


class _StaticFiles:
    """Links to static files that change when the file does, so that no browser keeps an old one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._links: dict[str, str] = {}

    def link(self, name: str) -> str:
        """The link to a file."""
        if name not in self._links:
            digest = hashlib.sha256((self._folder / name).read_bytes()).hexdigest()[:12]
            self._links[name] = f"static/{name}?v={digest}"
        return self._links[name]


# --- numbers and times --------------------------------------------------------------------------


def format_count(number: float | None) -> str:
    """A whole number with thousands apart: 12 345."""
    return NOTHING if number is None else f"{round(number):,}".replace(",", "\u202f")


def format_short(number: float | None) -> str:
    """A number in at most four characters: 950, 1.2k, 34M."""
    if number is None or math.isnan(number):
        return NOTHING
    for size, unit in _SHORT:
        if abs(number) >= size * 0.9995:
            scaled = number / size
            digits = f"{scaled:.0f}" if scaled >= 9.95 else f"{scaled:.1f}".removesuffix(".0")
            return digits + unit
    if number == 0 or abs(number) >= 9.95:
        return f"{number:.0f}"
    return f"{number:.1f}".removesuffix(".0") if abs(number) >= 0.095 else f"{number:.2f}"


def format_seconds(seconds: float | None) -> str:
    """A length of time in at most two units: 850µs, 45ms, 1.5s, 2m10s, 3d4h."""
    if seconds is None:
        return NOTHING
    if seconds <= 0:
        return "0s"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 0.9995:
        millis = seconds * 1e3
        return f"{millis:.0f}ms" if millis >= 9.95 else f"{millis:.1f}ms".replace(".0ms", "ms")
    if seconds < 9.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    return span_text(round(seconds))


def format_percent(share: float | None) -> str:
    """A share of 1 as a percentage; small ones are not rounded to nothing."""
    if share is None:
        return NOTHING
    percent = share * 100
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if 0 < percent < 9.95 else f"{percent:.0f}%"


def format_bytes(size: float | None) -> str:
    """A size in bytes: 950 B, 1.2 MB."""
    if size is None:
        return NOTHING
    short = format_short(size)
    return f"{short[:-1]} {short[-1]}B" if short[-1].isalpha() else f"{short} B"


def age_s(since: datetime | None, now: datetime) -> float | None:
    """How long ago an instant was."""
    return None if since is None else max(0.0, (now - since).total_seconds())


def format_ago(at: datetime | None, now: datetime) -> str:
    """How long ago an instant was, or in how long it will be."""
    if at is None:
        return NOTHING
    passed_s = (now - at).total_seconds()
    if abs(passed_s) < 1:
        return "now"
    return f"{format_seconds(passed_s)} ago" if passed_s > 0 else f"in {format_seconds(-passed_s)}"


def time_tag(at: datetime | None, style: str = "full") -> Markup | str:
    """An instant, in UTC until a script shows it in the visitor's time zone.

    The style is "full", "day" or "clock".
    """
    if at is None:
        return NOTHING
    utc = at.astimezone(UTC)
    form = {"clock": "%H:%M", "day": "%b %d", "full": "%Y-%m-%d %H:%M:%S UTC"}[style]
    return Markup('<time datetime="{}" data-time="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), style, utc.strftime(form)
    )


@pass_context
def _describe(context: Context, value: object) -> str:
    """A value of a payload as text, with what is hidden hidden."""
    view: View = context["view"]
    return str(view.redaction.apply(value))


FILTERS: Final[dict[str, Any]] = {
    "count": format_count,
    "short": format_short,
    "seconds": format_seconds,
    "percent": format_percent,
    "bytes": format_bytes,
    "time": time_tag,
    "ago": format_ago,
    "age": age_s,
    "redacted": _describe,
}
