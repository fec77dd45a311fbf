"""Completion scripts for bash, zsh and fish, generated from the parser; they need no package at run time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command and what may follow it."""

    name: str
    help: str
    options: list[tuple[str, str]]
    choices: list[str]


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
        options, choices = [], []
        for action in command._actions:  # noqa: SLF001
            options += [(flag, action.help or "") for flag in action.option_strings if flag.startswith("--")]
            choices += [str(choice) for choice in action.choices or [] if not action.option_strings]
        commands.append(CommandWords(name, helps.get(name, ""), options, choices))
    return commands


def _bash(commands: list[CommandWords]) -> str:
    cases = "\n".join(
        f'        {command.name}) words="{" ".join([*command.choices, *(flag for flag, _ in command.options)])}" ;;'
        for command in commands
    )
    return f"""# tenure completion for bash: eval "$(tenure completion bash)"
_tenure() {{
    local words current="${{COMP_WORDS[COMP_CWORD]}}" i
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then   # the user's own command follows
            ((i + 1 == COMP_CWORD)) && COMPREPLY=($(compgen -c -- "$current"))
            return
        fi
    done
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{" ".join(command.name for command in commands)} --help --version" ;;
    esac
    ((COMP_CWORD > 1)) && case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _tenure tenure
"""


def _zsh(commands: list[CommandWords]) -> str:
    listed = "\n".join(f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands)
    cases = "\n".join(
        f"        {command.name}) "
        + (f"compadd -- {' '.join(command.choices)}; " if command.choices else "")
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
        lines += [f"complete -c tenure {seen} -l {flag[2:]} -d {_quoted(about)}" for flag, about in command.options]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


SHELLS: dict[str, Callable[[list[CommandWords]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
