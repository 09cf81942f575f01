"""The first migration: what the admin shows."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """Creates no table."""

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
    )
