"""Completion scripts for bash, zsh and fish, generated from the parser; they need no package at run time. Names of
jobs are asked of the store while you type."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE = 3.0
"""Seconds that a person waits for names of jobs, at the most."""


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command and what may follow it."""

    name: str
    help: str
    options: list[tuple[str, str]]
    choices: list[str]
    values: dict[str, list[str]]
    """By option: the words that may follow it."""
    jobs: bool
    """Names of jobs may follow."""


def write(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script for a shell."""
    print(SHELLS[shell](_commands(parser)), end="")
    return 0


def _commands(parser: argparse.ArgumentParser) -> list[CommandWords]:
    # argparse has no public way to list its actions.
    [added] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001
    helps = {choice.dest: choice.help or "" for choice in added._choices_actions}  # noqa: SLF001
    commands = []
    for name, command in added.choices.items():
        values: dict[str, list[str]] = {}
        options, choices, jobs = [], [], False
        for action in command._actions:  # noqa: SLF001
            options += [(flag, action.help or "") for flag in action.option_strings if flag.startswith("--")]
            words = [str(choice) for choice in action.choices or []]
            if action.option_strings:
                values |= {flag: words for flag in action.option_strings if words}
            else:
                choices += words
                jobs |= takes_jobs(action)
        commands.append(CommandWords(name, helps.get(name, ""), options, choices, values, jobs))
    return commands


def takes_jobs(action: argparse.Action) -> bool:
    """True if names of jobs may be given there: the placeholder says so."""
    return "JOB" in str(action.metavar or "").split("|")


def job_names(prefix: str, **_: object) -> list[str]:
    """The jobs whose names begin so, for argcomplete; none if the store does not answer."""
    asked = [sys.executable, "-m", "tenure", "jobs", "--names", f"{prefix}*"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return found.stdout.splitlines()


def complete_jobs(parser: argparse.ArgumentParser) -> None:
    """Let argcomplete complete names of jobs."""
    [added] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001
    for command in added.choices.values():
        for action in command._actions:  # noqa: SLF001
            if takes_jobs(action):
                action.completer = job_names


def _bash(commands: list[CommandWords]) -> str:
    cases = "\n".join(
        f'        {command.name}) words="{" ".join([*command.choices, *(flag for flag, _ in command.options)])}" ;;'
        for command in commands
    )
    values = "\n".join(
        f'        {command.name}:{flag}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$current")); return ;;'
        for command in commands
        for flag, words in command.values.items()
    )
    with_jobs = "|".join(command.name for command in commands if command.jobs)
    return f"""# tenure completion for bash: eval "$(tenure completion bash)"
_tenure() {{
    local words current="${{COMP_WORDS[COMP_CWORD]}}" i name typed
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then   # the user's own command follows
            ((i + 1 == COMP_CWORD)) && COMPREPLY=($(compgen -c -- "$current"))
            return
        fi
    done
    case "${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    esac
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{" ".join(command.name for command in commands)} --help --version" ;;
    esac
    ((COMP_CWORD > 1)) && case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    typed="${{COMP_LINE:0:COMP_POINT}}" typed="${{typed##* }}"
    ((COMP_CWORD > 1)) && [[ $typed != -* ]] && case "${{COMP_WORDS[1]}}" in
        {with_jobs})
            while IFS= read -r name; do   # bash takes a colon for the end of a word
                [[ $name == "$typed"* ]] && COMPREPLY+=("${{name#"${{typed%"${{typed##*:}}"}}"}}")
            done < <(tenure jobs --names "$typed*" 2>/dev/null) ;;
    esac
}}
complete -o default -F _tenure tenure
"""


def _zsh(commands: list[CommandWords]) -> str:
    listed = "\n".join(f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands)
    values = "\n".join(
        f"        {command.name}:{flag}) compadd -- {' '.join(words)}; return ;;"
        for command in commands
        for flag, words in command.values.items()
    )
    cases = "\n".join(
        f"        {command.name}) "
        + (f"compadd -- {' '.join(command.choices)}; " if command.choices else "")
        + ('[[ $PREFIX != -* ]] && compadd -- ${(f)"$(tenure jobs --names 2>/dev/null)"}; ' if command.jobs else "")
        + f"[[ $PREFIX == -* ]] && compadd -- {' '.join(flag for flag, _ in command.options)} || _files ;;"
        for command in commands
    )
    return f"""#compdef tenure
# tenure completion for zsh: eval "$(tenure completion zsh)", after compinit
_tenure() {{
    local -a tenure_commands
    tenure_commands=(
{listed}
    )
    local separator=${{words[(i)--]}}
    if (( separator < CURRENT )); then   # the user's own command follows
        shift $separator words
        (( CURRENT -= separator ))
        _normal
        return
    fi
    if (( CURRENT == 2 )); then
        _describe command tenure_commands
        return
    fi
    case $words[2]:$words[CURRENT-1] in
{values}
    esac
    case $words[2] in
{cases}
    esac
}}
compdef _tenure tenure
"""


def _fish(commands: list[CommandWords]) -> str:
    lines = ["# tenure completion for fish: tenure completion fish > ~/.config/fish/completions/tenure.fish"]
    lines += [f"complete -c tenure -n __fish_use_subcommand -f -a {c.name} -d {_quoted(c.help)}" for c in commands]
    for command in commands:
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.choices:
            lines.append(f"complete -c tenure {seen} -f -a {_quoted(' '.join(command.choices))}")
        if command.jobs:
            lines.append(f"complete -c tenure {seen} -f -a '(tenure jobs --names 2>/dev/null)'")
        for flag, about in command.options:
            words = command.values.get(flag)
            given = f" -x -a {_quoted(' '.join(words))}" if words else ""
            lines.append(f"complete -c tenure {seen} -l {flag[2:]}{given} -d {_quoted(about)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


SHELLS: dict[str, Callable[[list[CommandWords]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
