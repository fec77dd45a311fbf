"""Store URLs as SQLAlchemy and libpq write them, parsed without connecting to anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tenure.errors import ConfigurationError
from tenure.util.plurals import a_type

MASK = "***"
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
    """What libpq gets, and what may be shown of it."""

    conninfo: str = field(repr=False)
    shown: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The password, and the parts into which libpq would split a badly written one. The longest first."""

    def __str__(self) -> str:
        return self.shown

    def hide(self, text: str) -> str:
        """The text without the password and its parts: libpq's errors quote the URL."""
        for secret in self.secrets:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        return text


StoreURL = SqliteURL | MemoryURL | PostgresURL


def parse(url: object) -> StoreURL:
    """Parse a URL, a SQLAlchemy URL object, or a libpq connection string."""
    render = getattr(url, "render_as_string", None)  # a SQLAlchemy URL hides its password from str()
    text = render(hide_password=False) if callable(render) else url
    if not isinstance(text, str):
        raise ConfigurationError(f"store URL: {url!r} is {a_type(url)}. Write a URL such as {EXAMPLES}.")
    text = text.strip()
    if not text:
        raise ConfigurationError(f"store URL is empty. Write a URL such as {EXAMPLES}, or set TENURE_URL.")
    if "://" not in text:
        if re.match(r"\w+\s*=", text):  # libpq's "host=… dbname=…"
            return _conninfo(_refuse_masked(text))
        raise ConfigurationError(f"store URL: {_masked(text)!r} has no scheme. Write a URL such as {EXAMPLES}.")
    scheme, rest = text.split("://", 1)
    match scheme.split("+")[0].lower():  # the dialect suffix (+asyncpg, +psycopg …) is the application's choice
        case "sqlite":
            return _sqlite(rest)
        case "memory":
            return MemoryURL(rest.strip("/"))
        case "postgresql" | "postgres":
            return _postgres(text, rest)
        case other:
            raise ConfigurationError(
                f"store URL: {other!r} is not a store that tenure has. "
                f"It has SQLite, PostgreSQL and memory: {EXAMPLES}."
            )


def _sqlite(rest: str) -> SqliteURL:
    path, _, query = rest.partition("?")
    if query:
        got = MASK if "@" in query else repr(query)
        raise ConfigurationError(
            f"store URL: SQLite takes no options after '?', got {got}. Write sqlite:///path/to/file.db."
        )
    if not path.startswith("/"):
        raise ConfigurationError(
            f"store URL: {_masked('sqlite://' + path)!r} has a host name. "
            "Three slashes are a relative path (sqlite:///jobs.db), four an absolute one."
        )
    path = unquote(path[1:])
    if path in {"", ":memory:"}:
        raise ConfigurationError(
            "store URL: a SQLite database in memory cannot be shared by workers. Write memory:// for tests, or a file."
        )
    return SqliteURL(path)


def _postgres(text: str, rest: str) -> PostgresURL:
    _refuse_masked(text)
    try:
        parts = urlsplit("postgresql://" + rest.replace("#", "%23"))  # to libpq '#' is a plain character
    except ValueError:  # its message would quote the URL
        raise ConfigurationError(
            f"store URL: {_masked(text)!r} cannot be parsed. Percent-encode special characters, such as %5B for '['."
        ) from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any(
        key == "prepared_statement_cache_size" for key, _ in query
    ):  # asyncpg's through SQLAlchemy; libpq would refuse it
        query = [(key, value) for key, value in query if key != "prepared_statement_cache_size"]
    kept = "&".join(f"{key}={quote(value, safe='/:,')}" for key, value in query)  # options=-c… has a '=' of its own
    # Not urlunsplit, which drops the slashes of an empty host.
    plain = f"postgresql://{parts.netloc}{parts.path}{'?' if kept else ''}{kept}"
    guarded = [value for key, value in query if _is_secret(key)]
    if found := _USERINFO.search(text):
        guarded.append(found["password"])
    return PostgresURL(plain, shown=_masked(plain), secrets=_pieces(guarded))


def _conninfo(text: str) -> PostgresURL:
    """libpq's own form. Text that is neither an option nor its value may belong to a password without quotes."""
    shown, guarded, end = "", [], 0
    for pair in _PAIR.finditer(text):
        shown, stray = _between(shown, text[end : pair.start()])
        secret = _is_secret(pair["word"])
        shown += f"{pair['word']}={MASK if secret else pair['value']}"
        guarded += [stray, pair["value"] if secret else ""]
        end = pair.end()
    shown, stray = _between(shown, text[end:])
    return PostgresURL(text, shown=shown, secrets=_pieces([*guarded, stray]))


def _between(shown: str, text: str) -> tuple[str, str]:
    stray = text.strip()
    return shown + (f" {MASK} " if stray else " " if shown and text else ""), stray


def _pieces(guarded: list[str]) -> tuple[str, ...]:
    whole = {
        text
        for given in guarded
        for text in (given, unquote(given), given.strip("'"), re.sub(r"\\(.)", r"\1", given.strip("'")))
    }
    pieces = {piece for text in whole for piece in _CUTS.split(text)}
    return tuple(sorted((text for text in whole | pieces if len(text) > 1), key=len, reverse=True))


def _refuse_masked(text: str) -> str:
    if re.search(r":\*\*\*@|password\s*=\s*'?\*\*\*|[?&]password=\*\*\*", text):
        raise ConfigurationError(
            "store URL: the password is masked ('***'). str(engine.url) hides it: pass engine.url itself, "
            "or engine.url.render_as_string(hide_password=False)."
        )
    return text


def _masked(text: str) -> str:
    """Hide everything up to the last '@': a password may contain any character that was not encoded."""
    text = _USERINFO.sub(lambda found: f"{found['before']}:{MASK}@", text)
    return re.sub(r"([?&](\w+)=)([^&]*)", lambda found: found[1] + (MASK if _is_secret(found[2]) else found[3]), text)


def _is_secret(word: str) -> bool:
    """True for libpq's options that are secrets; `sslkey` is the name of a file."""
    return word.lower().endswith(("password", "secret", "key")) and word.lower() != "sslkey"


_USERINFO = re.compile(r"^(?P<before>[^:/]+://[^:@]*|(?![^:/]+://)[^:@]*):(?P<password>.*)@", re.DOTALL)
_PAIR = re.compile(r"(?P<word>\w+)\s*=\s*(?P<value>'(?:\\.|[^'\\])*'|(?:\\.|[^\s\\'])(?:\\.|[^\s\\])*|)", re.DOTALL)
_CUTS = re.compile(r"[^\w]+")
