"""As `django-admin startproject` makes it."""

import sys

from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
