"""The grammar of the command line: every command, its options, and an example in its help."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import textwrap
from collections.abc import Callable, Sequence

import tenure
from tenure.cli import completion, definitions, elections, imports, jobs_parser

ABOUT = """Scheduled jobs and leader election on the database you already have.

Give the store by --url or TENURE_URL: sqlite:///jobs.db, postgresql://user@host/database. Other users of the machine \
can read command lines: put a URL with a password into TENURE_URL, or the password into ~/.pgpass."""

CODES = (
    "exit codes: 0 yes, 1 no, 2 wrong usage, 3 the database does not answer, 4 tables missing or unusable "
    "(docs/reference/cli.md)"
)

Command = Callable[..., argparse.ArgumentParser]


class Layout(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal, leaves examples as they are, and gives long options room on the left."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            part if part.startswith("example") else textwrap.fill(part, width, break_on_hyphens=False)
            for part in text.split("\n\n")
        ]
        return textwrap.indent("\n\n".join(paragraphs), indent)


def build() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = argparse.ArgumentParser(prog="tenure", description=ABOUT, epilog=CODES, formatter_class=Layout)
    parser.add_argument("--version", action="version", version=f"tenure {tenure.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="subcommand", required=True)

    def command(
        name: str,
        run: Callable[[argparse.Namespace], int],
        help_: str,
        about: str,
        *examples: str,
        json: bool = False,
        store: bool = True,
    ) -> argparse.ArgumentParser:
        lines = "\n".join(f"  {example}" for example in examples)
        added = commands.add_parser(
            name,
            help=help_,
            description=about,
            epilog=f"example{'s' if len(examples) > 1 else ''}:\n{lines}\n\n{CODES}",
            formatter_class=Layout,
        )
        added._negative_number_matcher = jobs_parser.AGO  # noqa: SLF001 - there is no other way
        added.set_defaults(run=run)
        added.add_argument("-v", "--verbose", action="store_true", help="also print what the library logs")
        if store:
            added.add_argument("--url", metavar="URL", help="the store (default: TENURE_URL)")
            added.add_argument(
                "--schema",
                default=os.environ.get("TENURE_SCHEMA", "tenure"),
                help="PostgreSQL schema of tenure's tables (default: TENURE_SCHEMA, else tenure)",
            )
        if json:
            added.add_argument("--json", action="store_true", help="print JSON")
        return added

    jobs_parser.add(command)
    definitions.add(command)
    _lead(command)
    jobs_parser.once(command)
    imports.add(command)
    _elections(command)
    _store(command)
    _demo(command)
    _completion(command, parser)
    return parser


def parse(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments. `tenure lead` and `once` take everything after the first `--` as their command, unread."""
    words, command = list(given), None
    _known(parser, words)
    if words[:1] in (["lead"], ["once"]) and "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    arguments, unknown = parser.parse_known_args(words)
    if (name := arguments.subcommand) in {"lead", "once"}:
        if unknown and command is None and not unknown[0].startswith("-"):
            parser.error(f"write the command after '--': tenure {name} {arguments.name} -- {' '.join(unknown)}")
        if not command and not unknown:
            parser.error(f"the command is missing: tenure {name} {arguments.name} -- command …")
        arguments.command = command
    if unknown:
        _commands(parser)[name].error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    [added] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - no other way
    return added.choices


def _known(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse a command that does not exist, and name those that it may have been meant for; and an option before the
    command."""
    commands, word = _commands(parser), words[0] if words else None
    if word is None or word in {*commands, "-h", "--help", "--version"}:
        return
    if word.startswith("-"):
        place = next((place for place, other in enumerate(words) if other in commands), None)
        meant = "tenure COMMAND [options]" if place is None else shlex.join(["tenure", *words[place:], *words[:place]])
        parser.error(f"{word!r} is an option, and options stand behind the command: `{meant}`.")
    near = difflib.get_close_matches(word, commands, 3)
    meant = f" Did you mean {' or '.join(f'`tenure {name}`' for name in near)}?" if near else ""
    parser.error(f"there is no command {word!r}.{meant} `tenure --help` lists all of them.")


def _lead(command: Command) -> None:
    lead = command(
        "lead",
        elections.lead,
        "run a command while leading",
        "Wait for a term, run the command while it lasts, and stop the command in time: when the term is lost, the "
        "command's whole process group is dead before another node can lead. If the command ends by itself, resign and "
        "end with its exit code. If it was stopped because the term was lost, wait for the next term and run it "
        "again.\n\nThe command finds TENURE_ELECTION, TENURE_TERM, TENURE_NODE and TENURE_SCHEMA in its environment.",
        "tenure lead exporter -- ./exporter",
        "tenure lead nightly --try -- ./report     # cron on every host: one runs it, the others end with 1",
    )
    lead.usage = "tenure lead NAME [options] -- command [argument …]"
    lead.add_argument("name", metavar="NAME", help="the election")
    lead.add_argument(
        "--ttl", default="10s", metavar="DURATION", help="how long a silent node keeps a term (default: 10s)"
    )
    lead.add_argument(
        "--grace", metavar="DURATION", help="time between SIGTERM and SIGKILL; less than 0.6 · ttl (default: 0.3 · ttl)"
    )
    lead.add_argument("--label", help="a human-readable name for this node (default: host:pid)")
    again = lead.add_mutually_exclusive_group()
    again.add_argument("--once", action="store_true", help="if the term is lost, stop the command and end with 1")
    again.add_argument(
        "--forever", action="store_true", help="run the command again, in a new term, even if it ended by itself"
    )
    patience = lead.add_mutually_exclusive_group()
    patience.add_argument(
        "--wait", metavar="DURATION", help="end with 1 if not leading after this time (default: wait for ever)"
    )
    patience.add_argument("--try", action="store_true", dest="try_", help="end with 1 if not leading at once")
    lead.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    lead.add_argument("--no-migrate", action="store_true", help="do not create or upgrade tenure's tables")


def _elections(command: Command) -> None:
    leader = command(
        "leader",
        elections.leader,
        "show who leads an election",
        "Show who leads an election, in which term and since when. Exit code 1 if no node does.",
        "tenure leader exporter",
        "tenure leader exporter --json | jq -r .label",
        json=True,
    )
    leader.add_argument("name", metavar="NAME", help="the election")
    terms = command(
        "terms",
        elections.terms,
        "list past terms",
        "List the newest terms: who led, from when until when, why the term began and ended, and how long there was no "
        "leader before it.",
        "tenure terms exporter --limit 50",
        json=True,
    )
    terms.add_argument("name", metavar="NAME", nargs="?", help="the election (default: all)")
    terms.add_argument("--limit", type=jobs_parser.count, default=20, metavar="N", help="how many (default: 20)")
    resign = command(
        "resign",
        elections.resign,
        "ask the leader to resign",
        "Ask the leader to resign. It stops its work, and then another node may take over; the old leader stays a "
        "candidate, but lets the others go first. Without a name, ask the node that plans the jobs of an application; "
        "its runs go on. Exit code 1 if no node leads or, with --wait, if no other node took over in time.",
        "tenure resign exporter",
        "tenure resign exporter --wait 20s    # before a deployment: return when another node leads",
        json=True,
    )
    resign.add_argument("name", metavar="NAME", nargs="?", help="the election (default: the planner of the jobs)")
    jobs_parser.who_and_why(resign)
    resign.add_argument(
        "--app", metavar="NAME", help="the application whose planner is asked (default: TENURE_APP, else the only one)"
    )
    resign.add_argument(
        "--wait", metavar="DURATION", nargs="?", const="30s", help="wait until another node leads (default: 30s)"
    )
    command(
        "elections",
        elections.elections,
        "list the elections that have a leader",
        "List every election that has a leader.",
        "tenure elections",
        json=True,
    )


def _store(command: Command) -> None:
    migrate = command(
        "migrate",
        elections.migrate,
        "create or upgrade tenure's tables",
        "Create or upgrade tenure's tables. Programs do this by themselves unless they say migrate=False or their role "
        "may not. Then run this command as a role that may, or apply the SQL that --print writes.",
        "tenure migrate",
        "tenure migrate --print | psql -v ON_ERROR_STOP=1 app",
        "tenure migrate --grants web | psql app    # web runs nodes and owns nothing",
    )
    printed = migrate.add_mutually_exclusive_group()
    printed.add_argument(
        "--print", action="store_true", dest="print_", help="print the SQL for an empty database; change nothing"
    )
    migrate.add_argument(
        "--from",
        type=int,
        dest="since",
        metavar="VERSION",
        help="with --print: the SQL that upgrades tables of this version",
    )
    printed.add_argument(
        "--grants", metavar="ROLE", help="print the SQL that gives a role what a node needs; change nothing"
    )
    migrate.add_argument(
        "--effects-only",
        action="store_true",
        help="with --grants: only what term.fence, run.complete and run.once need",
    )
    epoch = command(
        "epoch",
        elections.epoch,
        "show or raise the epoch of the terms",
        "Terms are numbered from epoch · 2^20 on. tenure raises the epoch by itself when it sees that the database is "
        "not the one that granted the terms: after a failover, a restored dump, a copied file. Use `raise` after a "
        "restore that tenure cannot see, such as a storage snapshot put back under a running server.\n\n"
        "`raise` stops all grants, waits until no node can still believe in a forgotten term, then raises the epoch, "
        "so no term number is ever given out twice. Leaders that the database knows go on. Exit code 1 if the epoch is "
        "not settled.",
        "tenure epoch",
        "tenure epoch raise",
        json=True,
    )
    epoch.add_argument("action", nargs="?", choices=["show", "raise"], default="show", help="show (default) or raise")
    doctor = command(
        "doctor",
        elections.doctor,
        "check a store and this machine",
        "Check everything that tenure relies on, and say what to do about each problem.",
        "tenure doctor postgresql:///app",
        json=True,
    )
    doctor.add_argument("--ttl", default="10s", metavar="DURATION", help="the ttl that you use or plan (default: 10s)")
    doctor.add_argument("store", metavar="URL", nargs="?", help="the store (default: --url, else TENURE_URL)")


def _demo(command: Command) -> None:
    demo = command(
        "demo",
        elections.demo,
        "watch five workers survive kills and freezes",
        "Start five processes that run three jobs and stand for one election. Every few seconds kill or freeze the "
        "leader, or the node that plans. Watch it on the page, at the address that is printed first (needs the extra "
        "'web'). At the end compare what the processes recorded with the audit of the ledger. "
        "Leaves nothing behind. Exit code 1 if two nodes led at once, or a due time ran twice or was lost.",
        "tenure demo",
        "tenure demo --seconds 120",
        "tenure demo --no-web --seconds 10 --postgres postgresql:///test",
        store=False,
    )
    demo.add_argument("--no-web", dest="web", action="store_false", help="without the page")
    demo.add_argument(
        "--seconds", type=float, default=36.0, metavar="N", help="how long, from the first leader on (default: 36)"
    )
    demo.add_argument(
        "--postgres", metavar="URL", help="use this database, in a schema of its own that is dropped at the end"
    )


def _completion(command: Command, parser: argparse.ArgumentParser) -> None:
    complete = command(
        "completion",
        lambda arguments: completion.write(parser, arguments.shell),
        "print a completion script for your shell",
        "Print a completion script.",
        'eval "$(tenure completion bash)"                                      # in ~/.bashrc',
        'eval "$(tenure completion zsh)"                                       # in ~/.zshrc, after compinit',
        "tenure completion fish > ~/.config/fish/completions/tenure.fish",
        store=False,
    )
    complete.add_argument("shell", choices=sorted(completion.SHELLS), help="which shell")
