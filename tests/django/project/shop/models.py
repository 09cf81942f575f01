"""What the tasks of the project work on."""

from django.db import models


class Order(models.Model):
    """An order, and how often it was charged."""

    charged = models.IntegerField(default=0)
