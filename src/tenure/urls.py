"""Where the store is: URLs as SQLAlchemy and libpq write them, taken apart without connecting to anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from tenure.errors import ConfigurationError

EXAMPLES = "sqlite:///jobs.db, postgresql://user:password@host/database, or memory://"


@dataclass(frozen=True, slots=True)
class SqliteURL:
    """A file on this host."""

    path: str

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True)
class MemoryURL:
    """A store inside this process, for tests and one-process tools; equal names share one."""

    name: str

    def __str__(self) -> str:
        return f"memory://{self.name}"


@dataclass(frozen=True, slots=True)
class PostgresURL:
    """What libpq is given, and what may be shown of it."""

    conninfo: str = field(repr=False)
    shown: str = ""

    def __str__(self) -> str:
        return self.shown


StoreURL = SqliteURL | MemoryURL | PostgresURL


def parse(url: object) -> StoreURL:
    """Understand a URL, a SQLAlchemy URL object, or a libpq connection string."""
    render = getattr(url, "render_as_string", None)  # a SQLAlchemy URL hides its password from str()
    text = render(hide_password=False) if callable(render) else url
    if not isinstance(text, str):
        raise ConfigurationError(f"store URL: {url!r} is a {type(url).__name__}. Write a URL such as {EXAMPLES}.")
    text = text.strip()
    if not text:
        raise ConfigurationError(f"store URL is empty. Write a URL such as {EXAMPLES}, or set TENURE_URL.")
    if "://" not in text:
        if re.match(r"\w+\s*=", text):  # libpq's "host=… dbname=…"
            return PostgresURL(_refuse_masked(text), shown=re.sub(r"(password\s*=\s*)('[^']*'|\S+)", r"\1***", text))
        raise ConfigurationError(f"store URL: {_masked(text)!r} has no scheme. Write a URL such as {EXAMPLES}.")
    scheme, rest = text.split("://", 1)
    match scheme.split("+")[0].lower():  # the dialect suffix (+asyncpg, +psycopg …) is the application's business
        case "sqlite":
            return _sqlite(rest)
        case "memory":
            return MemoryURL(rest.strip("/"))
        case "postgresql" | "postgres":
            return _postgres(text, rest)
        case other:
            raise ConfigurationError(
                f"store URL: {other!r} is not a store that tenure has. It has SQLite, PostgreSQL and memory: {EXAMPLES}."
            )


def _sqlite(rest: str) -> SqliteURL:
    path, _, query = rest.partition("?")
    if query:
        raise ConfigurationError(
            f"store URL: SQLite takes no options after '?', got {query!r}. Write sqlite:///path/to/file.db."
        )
    if not path.startswith("/"):
        raise ConfigurationError(
            f"store URL: 'sqlite://{path}' has a host name. Three slashes are a relative path (sqlite:///jobs.db), four an absolute one."
        )
    path = unquote(path[1:])
    if path in {"", ":memory:"}:
        raise ConfigurationError(
            "store URL: a SQLite database in memory cannot be shared by workers. Write memory:// for tests, or a file."
        )
    return SqliteURL(path)


def _postgres(text: str, rest: str) -> PostgresURL:
    _refuse_masked(text)
    parts = urlsplit("postgresql://" + rest)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any(
        key == "prepared_statement_cache_size" for key, _ in query
    ):  # asyncpg's through SQLAlchemy; libpq would refuse it
        query = [(key, value) for key, value in query if key != "prepared_statement_cache_size"]
    kept = "&".join(f"{key}={quote(value, safe='/:,')}" for key, value in query)  # options=-c… has a '=' of its own
    plain = urlunsplit(("postgresql", parts.netloc, parts.path, kept, ""))
    return PostgresURL(plain, shown=_masked(plain))


def _refuse_masked(text: str) -> str:
    if re.search(r":\*\*\*@|password\s*=\s*'?\*\*\*|[?&]password=\*\*\*", text):
        raise ConfigurationError(
            "store URL: the password is masked ('***'). str(engine.url) hides it: pass engine.url itself, "
            "or engine.url.render_as_string(hide_password=False)."
        )
    return text


def _masked(text: str) -> str:
    text = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", text)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", text)
