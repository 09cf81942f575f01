"""The table of the outbox, and what the admin shows."""

from typing import Any

from django.db import migrations, models

from tampu.outbox import create_sql
from tampu.outbox.schema import DEFAULT_TABLE

_VENDORS = ("postgresql", "sqlite")
"""The databases that an outbox works with. On others there is no table."""


def create_outbox(apps: Any, editor: Any) -> None:  # noqa: ANN401 - as Django has it
    """Create the table."""
    del apps
    if editor.connection.vendor in _VENDORS:
        editor.execute(create_sql(DEFAULT_TABLE, editor.connection.vendor))


def drop_outbox(apps: Any, editor: Any) -> None:  # noqa: ANN401
    """Remove the table, with jobs that were not moved."""
    del apps
    if editor.connection.vendor in _VENDORS:
        editor.execute(f"DROP TABLE {DEFAULT_TABLE}")


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """Creates the table of the outbox, whether it is used or not."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="DashboardLink",
            fields=[("id", models.BigAutoField(primary_key=True, serialize=False))],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "default_permissions": (),
                "managed": False,
            },
        ),
        migrations.RunPython(create_outbox, drop_outbox),
    )
