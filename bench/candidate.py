"""One of our candidates as a process: `candidate.py URL NAME OPTIONS`. SIGUSR1 makes it resign."""

import json
import signal
import sys
import threading

from cluster import boottime, say
from tenure import Election


def lead(election: Election) -> None:
    election.start()
    say("joined")
    for term in election.terms():
        if election.is_leader:
            say("leading", boottime(), term=term.number)
        term.wait()


def main() -> None:
    url, name, options = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    election = Election(url, name, **json.loads(options))
    threading.Thread(target=lead, args=[election], daemon=True).start()
    while True:
        signal.sigwait({signal.SIGUSR1})
        say("resigned", boottime())
        election.resign()


if __name__ == "__main__":
    main()
