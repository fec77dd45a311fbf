"""etcd's own election over its JSON gateway: `etcd_election.py PORT TTL`. A lease kept alive every third of its ttl."""

import base64
import http.client
import json
import os
import sys
import threading
import time

from cluster import say

port, ttl = int(sys.argv[1]), int(sys.argv[2])


def ask(path: str, **body: object) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", f"/v3/{path}", json.dumps(body))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return dict(answer)


def keep(lease: object) -> None:
    while True:
        time.sleep(ttl / 3)
        ask("lease/keepalive", ID=lease)


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


lease = ask("lease/grant", TTL=ttl)["ID"]
threading.Thread(target=keep, args=[lease], daemon=True).start()
say("joined")
ask("election/campaign", name=text("bench"), lease=lease, value=text(str(os.getpid())))
say("leading")
time.sleep(3600)
