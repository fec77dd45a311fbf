"""A scheduler as a process that serves the page as well: `page_node.py URL PAGE`. Its bodies note when they began.

With PAGE 1 it says its address before it is ready. It reports when its input ends.
"""

import sys
from contextlib import ExitStack

from scheduler_load import APPLICATION, FUNCTION
from scheduler_node import begun, body, say

from harness.web import served
from tenure import Scheduler
from tenure.web import web


def main() -> None:
    url, page = sys.argv[1], sys.argv[2] == "1"
    scheduler = Scheduler(url, application=APPLICATION)
    scheduler.job(name=FUNCTION)(body)
    with ExitStack() as stack:
        stack.enter_context(scheduler)
        if page:
            say(address=stack.enter_context(served(web(scheduler, authorize=lambda _request: "read"))))
        say(ready=True)
        sys.stdin.read()
        say(starts=begun)


if __name__ == "__main__":
    main()
