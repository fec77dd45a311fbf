"""Every kind of connection that a caller may hand us, behind one face, so that each scene is written once.

Scenes are coroutines. Those of a synchronous client never wait, so that they are run without an event loop (Django
refuses to work inside one).
"""

# ruff: noqa: ANN001, ANN003, ANN201, ANN202, ANN204 - untyped, as the tests that use it

import asyncio
import inspect
import sqlite3
from contextlib import asynccontextmanager

import aiosqlite
import asyncpg
import django
import django.db
import psycopg
import psycopg2
import psycopg_pool
import sqlalchemy
from django.conf import settings
from django.db import transaction
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa

from tenure.transactions import fence

if not settings.configured:
    settings.configure(DATABASES={"default": {}}, USE_TZ=True)
    django.setup()


def scene(client, body):
    """Run a coroutine function with this client, open."""

    async def play():
        await awaited(client.open())
        try:
            await body()
        finally:
            await awaited(client.close())

    if client.is_async:
        asyncio.run(play())
        return
    coroutine = play()
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a synchronous client waited for something")


async def awaited(value):
    return await value if inspect.isawaitable(value) else value


class Client:
    is_async = False
    connection = None

    def __init__(self, url, isolation=None):
        self.url, self.isolation = url, isolation

    async def fence(self, term):
        await awaited(fence.fence(self.connection, term))

    @asynccontextmanager
    async def fenced(self, term):
        if self.is_async:
            async with fence.fenced(self.connection, term):
                yield
        else:
            with fence.fenced(self.connection, term):
                yield

    async def execute(self, statement):
        return await awaited(self.connection.execute(statement))


def level(isolation):
    """As psycopg names it."""
    return getattr(psycopg.IsolationLevel, isolation.replace(" ", "_")) if isolation else None


class Psycopg(Client):
    """With a cursor that reads `$1` and rows that are objects: whatever the caller chose must not matter."""

    def open(self):
        self.connection = psycopg.connect(self.url, cursor_factory=psycopg.RawCursor, row_factory=psycopg.rows.dict_row)
        self.connection.isolation_level = level(self.isolation)

    def close(self):
        self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        with self.connection.transaction():
            yield

    savepoint = transaction

    def autocommit(self):
        self.connection.autocommit = True


class PsycopgByHand(Psycopg):
    """commit() and rollback() instead of blocks."""

    @asynccontextmanager
    async def transaction(self):
        try:
            yield
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise


class PsycopgPool(Psycopg):
    def open(self):
        self.pool = psycopg_pool.ConnectionPool(self.url, min_size=1, max_size=1, open=True)
        self.pool.wait()

    def close(self):
        self.pool.close()

    @asynccontextmanager
    async def transaction(self):
        with self.pool.connection() as self.connection:
            self.connection.isolation_level = level(self.isolation)
            yield

    def autocommit(self):
        self.pool._configure = lambda connection: connection.set_autocommit(True)
        self.connection = self.pool.getconn()
        self.connection.autocommit = True

    async def execute(self, statement):
        if self.connection is None or self.connection.closed:
            with self.pool.connection() as self.connection:
                return self.connection.execute(statement)
        return self.connection.execute(statement)


class AsyncPsycopg(Client):
    is_async = True

    async def open(self):
        self.connection = await psycopg.AsyncConnection.connect(self.url)
        await self.connection.set_isolation_level(level(self.isolation))

    async def close(self):
        await self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        async with self.connection.transaction():
            yield

    savepoint = transaction

    def autocommit(self):
        return self.connection.set_autocommit(True)


class Psycopg2(Client):
    def open(self):
        self.connection = psycopg2.connect(self.url)
        if self.isolation:
            self.connection.set_session(isolation_level=self.isolation)

    def close(self):
        self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        with self.connection:
            yield

    async def execute(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def autocommit(self):
        self.connection.autocommit = True


class Asyncpg(Client):
    is_async = True

    async def open(self):
        self.connection = await asyncpg.connect(self.url)

    async def close(self):
        await self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        async with self.connection.transaction(
            isolation=self.isolation.lower().replace(" ", "_") if self.isolation else None
        ):
            yield

    @asynccontextmanager
    async def savepoint(self):
        async with self.connection.transaction():
            yield

    def autocommit(self):
        pass  # it always is


class AsyncpgPool(Asyncpg):
    async def open(self):
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self.pool.acquire()

    async def close(self):
        await self.pool.release(self.connection)
        await self.pool.close()


class Alchemy(Client):
    """SQLAlchemy's Connection."""

    driver = "psycopg"

    def open(self):
        url = self.url.replace("postgresql:", f"postgresql+{self.driver}:")
        self.engine = sqlalchemy.create_engine(url, **({"isolation_level": self.isolation} if self.isolation else {}))
        self.connection = self.engine.connect()

    def close(self):
        self.connection.close()
        self.engine.dispose()

    @asynccontextmanager
    async def transaction(self):
        with self.connection.begin():
            yield

    @asynccontextmanager
    async def savepoint(self):
        with self.connection.begin_nested():
            yield

    async def execute(self, statement):
        return self.connection.execute(sqlalchemy.text(statement))

    def autocommit(self):
        self.connection.execution_options(isolation_level="AUTOCOMMIT")
        self.connection.begin()


class AlchemyPsycopg2(Alchemy):
    driver = "psycopg2"


class AlchemySession(Alchemy):
    """SQLAlchemy's Session."""

    def open(self):
        super().open()
        self.connection.close()
        self.connection = orm.Session(self.engine)

    def autocommit(self):
        self.connection.close()
        self.connection = orm.Session(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        self.connection.begin()


class AlchemyScopedSession(AlchemySession):
    """As Flask-SQLAlchemy's db.session."""

    def open(self):
        super().open()
        self.connection.close()
        self.connection = orm.scoped_session(orm.sessionmaker(self.engine))

    def autocommit(self):
        self.connection.configure(bind=self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        self.connection.begin()


class AsyncAlchemy(Client):
    """SQLAlchemy's AsyncConnection."""

    is_async = True
    driver = "asyncpg"

    async def open(self):
        url = self.url.replace("postgresql:", f"postgresql+{self.driver}:").replace("sqlite:", f"sqlite+{self.driver}:")
        self.engine = sa.create_async_engine(url, **({"isolation_level": self.isolation} if self.isolation else {}))
        self.connection = await self.engine.connect()

    async def close(self):
        await self.connection.close()
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self):
        async with self.connection.begin():
            yield

    @asynccontextmanager
    async def savepoint(self):
        async with self.connection.begin_nested():
            yield

    async def execute(self, statement):
        return await self.connection.execute(sqlalchemy.text(statement))

    async def autocommit(self):
        await self.connection.execution_options(isolation_level="AUTOCOMMIT")
        await self.connection.begin()


class AsyncAlchemyPsycopg(AsyncAlchemy):
    driver = "psycopg"


class AsyncAlchemySession(AsyncAlchemy):
    """SQLAlchemy's AsyncSession."""

    async def open(self):
        await super().open()
        await self.connection.close()
        self.connection = sa.AsyncSession(self.engine)

    async def autocommit(self):
        await self.connection.close()
        self.connection = sa.AsyncSession(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        await self.connection.begin()


class AsyncAlchemySqlite(AsyncAlchemy):
    driver = "aiosqlite"


class AsyncAlchemySqliteSession(AsyncAlchemySession):
    driver = "aiosqlite"


class Django(Client):
    """django.db.connection, the proxy that everybody imports."""

    connection = django.db.connection

    def database(self):
        parts = sqlalchemy.make_url(self.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.database,
            "HOST": parts.host,
            "PORT": parts.port,
            "USER": parts.username,
            "OPTIONS": {"isolation_level": level(self.isolation)} if self.isolation else {},
        }

    def open(self):
        django.db.connections.settings["default"] = self.database()
        django.db.connections.configure_settings({"default": django.db.connections.settings["default"]})
        if hasattr(django.db.connections._connections, "default"):
            del django.db.connections["default"]

    def close(self):
        self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        with transaction.atomic():
            yield

    savepoint = transaction

    async def execute(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def autocommit(self):
        pass


class DjangoSqlite(Django):
    def database(self):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": sqlalchemy.make_url(self.url).database}


class Sqlite(Client):
    def open(self):
        self.connection = sqlite3.connect(sqlalchemy.make_url(self.url).database, timeout=1)
        self.connection.row_factory = lambda *_: {}  # whatever the caller chose must not matter

    def close(self):
        self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        with self.connection:
            yield

    def autocommit(self):
        self.connection.isolation_level = None


class SqliteByHand(Sqlite):
    """isolation_level=None, BEGIN and COMMIT by hand."""

    def open(self):
        super().open()
        self.connection.isolation_level = None

    @asynccontextmanager
    async def transaction(self):
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()


class Aiosqlite(Client):
    is_async = True

    async def open(self, **options):
        self.connection = await aiosqlite.connect(sqlalchemy.make_url(self.url).database, timeout=1, **options)

    async def close(self):
        await self.connection.close()

    @asynccontextmanager
    async def transaction(self):
        try:
            yield
        except BaseException:
            await self.connection.rollback()
            raise
        await self.connection.commit()

    async def autocommit(self):
        await self.close()
        await self.open(isolation_level=None)


class AlchemySqlite(Alchemy):
    pass


class AlchemySqliteSession(AlchemySession):
    pass


ON_POSTGRES = [
    Psycopg,
    PsycopgByHand,
    PsycopgPool,
    AsyncPsycopg,
    Psycopg2,
    Asyncpg,
    AsyncpgPool,
    Alchemy,
    AlchemyPsycopg2,
    AlchemySession,
    AlchemyScopedSession,
    AsyncAlchemy,
    AsyncAlchemyPsycopg,
    AsyncAlchemySession,
    Django,
]
ON_SQLITE = [
    Sqlite,
    SqliteByHand,
    Aiosqlite,
    AlchemySqlite,
    AlchemySqliteSession,
    AsyncAlchemySqlite,
    AsyncAlchemySqliteSession,
    DjangoSqlite,
]
WITH_SAVEPOINT_BLOCKS = [kind for kind in ON_POSTGRES if hasattr(kind, "savepoint")]
ISOLATION = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
