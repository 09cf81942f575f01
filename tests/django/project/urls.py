"""The pages of the project."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path


def hello(request: HttpRequest) -> HttpResponse:
    """What everybody may see."""
    return HttpResponse("hello from the project")


urlpatterns = [path("admin/", admin.site.urls), path("hello", hello)]
