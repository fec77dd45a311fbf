"""What the job of each second sells."""

from django.db import models


class Sale(models.Model):
    due = models.FloatField()

    def __str__(self) -> str:
        return f"sale {self.due}"
