"""People who look at the page, as a process: `page_visitor.py STREAMS ADDRESS…`.

Each address has so many open browsers, one of which reads its page anew whenever it hears of a change. Once a second
one of them looks at the load, and one asks what another schedule would do. It reports when its input ends.
"""

import asyncio
import itertools
import json
import sys
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import httpx

WHAT_IF = "/load?" + urlencode({"expr": "*/5 * * * *", "tz": "Europe/Berlin", "job": "job-1"})

counts: Counter[str] = Counter()
refused: list[str] = []


async def browser(client: httpx.AsyncClient, base: str, *, reads: bool) -> None:
    """Keep a stream open, as a page does."""
    while True:
        async with client.stream("GET", base + "/live") as stream:
            if stream.status_code != 200:
                refused.append(f"/live: {stream.status_code}")
                await asyncio.sleep(0.5)
                continue
            async for line in stream.aiter_lines():
                if line.startswith("event: changed"):
                    counts["changes"] += 1
                    if reads:
                        await look(client, base + "/")


async def look(client: httpx.AsyncClient, address: str) -> None:
    answer = await client.get(address)
    counts["pages"] += 1
    if answer.status_code not in {200, 503}:  # 503: another what-if is being answered, which is a promise too
        refused.append(f"{address}: {answer.status_code}")


async def questions(client: httpx.AsyncClient, bases: list[str]) -> None:
    for base in itertools.cycle(bases):
        await asyncio.gather(look(client, base + "/load"), look(client, base + WHAT_IF))
        await asyncio.sleep(1)


async def main() -> None:
    streams, bases = int(sys.argv[1]), sys.argv[2:]
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=httpx.Timeout(30), limits=limits) as client:
        tasks = [asyncio.create_task(browser(client, base, reads=n == 0)) for base in bases for n in range(streams)]
        tasks.append(asyncio.create_task(questions(client, bases)))
        say(ready=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        refused.extend(repr(result) for result in results if isinstance(result, Exception))
        say(pages=counts["pages"], changes=counts["changes"], refused=len(refused), first=refused[:3])


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
