"""A link to the dashboard in Django's admin, if TAMPU_DASHBOARD_URL says where it is."""

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from tampu.django.models import DashboardLink


class DashboardAdmin(admin.ModelAdmin):  # type: ignore[misc] # Django has no types
    """Leads to the dashboard; there is nothing to add, change or delete."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the link is shown."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether the user is staff, and there is a dashboard to open."""
        del obj
        return bool(request.user.is_staff and getattr(settings, "TAMPU_DASHBOARD_URL", None))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: there is only the link."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Never: there is only the link."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Never: there is only the link."""
        del request, obj
        return False

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponse:
        """Go to the dashboard."""
        del request, extra_context
        return HttpResponseRedirect(settings.TAMPU_DASHBOARD_URL)


admin.site.register(DashboardLink, DashboardAdmin)
