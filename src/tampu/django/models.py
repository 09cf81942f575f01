"""What stands for the dashboard in Django's admin."""

from django.db import models


class DashboardLink(models.Model):  # type: ignore[misc] # Django has no types
    """The dashboard; it has no table."""

    class Meta:
        """The word that the admin shows."""

        managed = False
        verbose_name = verbose_name_plural = "dashboard"
        default_permissions = ()
