"""A project on the database in DATABASE: a file, or PostgreSQL."""

import os

from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "test"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop", "tenure.ext.django"]
TIME_ZONE = "Asia/Seoul"
USE_TZ = True
LOGGING = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
TENURE = {"SERVE": bool(os.environ.get("SERVE")), "TTL": 6, "HEARTBEAT_EVERY": 0.5, "ATTEMPT_TIMEOUT": 1}

_WHERE = os.environ["DATABASE"]
if _WHERE.startswith("sqlite:///"):
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _WHERE.removeprefix("sqlite:///")}}
else:
    _parts = conninfo_to_dict(_WHERE)
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _parts.pop("dbname"),
            "HOST": _parts.pop("host"),
            "PORT": _parts.pop("port"),
            "USER": _parts.pop("user"),
            "PASSWORD": _parts.pop("password", ""),
            "OPTIONS": _parts,
        }
    }
