"""One page."""

import os

from django.http import HttpRequest, JsonResponse
from django.urls import path

from tenure.ext.django import scheduler


def hello(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"pid": os.getpid(), "started": scheduler.started})


urlpatterns = [path("", hello)]
