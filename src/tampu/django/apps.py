"""The app for `INSTALLED_APPS`."""

from django.apps import AppConfig
from django.core import checks

from tampu.django.checks import check_settings


class TampuConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """`"tampu.django"` in `INSTALLED_APPS`."""

    name = "tampu.django"
    label = "tampu"
    verbose_name = "Tampu"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks."""
        checks.register(check_settings)
