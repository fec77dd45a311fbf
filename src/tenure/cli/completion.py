"""Completion scripts for bash, zsh and fish, written from the grammar itself; no package is needed at run time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One verb and what may follow it."""

    name: str
    help: str
    options: list[tuple[str, str]]
    choices: list[str]


def write(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script for a shell."""
    print(SHELLS[shell](_words(parser)), end="")
    return 0


def _words(parser: argparse.ArgumentParser) -> list[Word]:
    [verbs] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - there is no other way
    helps = {choice.dest: choice.help or "" for choice in verbs._choices_actions}  # noqa: SLF001
    words = []
    for name, verb in verbs.choices.items():
        options, choices = [], []
        for action in verb._actions:  # noqa: SLF001
            options += [(flag, action.help or "") for flag in action.option_strings if flag.startswith("--")]
            choices += [str(choice) for choice in action.choices or [] if not action.option_strings]
        words.append(Word(name, helps.get(name, ""), options, choices))
    return words


def _bash(words: list[Word]) -> str:
    cases = "\n".join(
        f'        {word.name}) words="{" ".join([*word.choices, *(flag for flag, _ in word.options)])}" ;;'
        for word in words
    )
    return f"""# tenure completion for bash: eval "$(tenure completion bash)"
_tenure() {{
    local words current="${{COMP_WORDS[COMP_CWORD]}}" i
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then   # after it comes a command of the user's own
            ((i + 1 == COMP_CWORD)) && COMPREPLY=($(compgen -c -- "$current"))
            return
        fi
    done
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{" ".join(word.name for word in words)} --help --version" ;;
    esac
    ((COMP_CWORD > 1)) && case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _tenure tenure
"""


def _zsh(words: list[Word]) -> str:
    verbs = "\n".join(f"        {_quoted(f'{word.name}:{word.help}')}" for word in words)
    cases = "\n".join(
        f"        {word.name}) "
        + (f"compadd -- {' '.join(word.choices)}; " if word.choices else "")
        + f"[[ $PREFIX == -* ]] && compadd -- {' '.join(flag for flag, _ in word.options)} || _files ;;"
        for word in words
    )
    return f"""#compdef tenure
# tenure completion for zsh: eval "$(tenure completion zsh)", after compinit
_tenure() {{
    local -a verbs
    verbs=(
{verbs}
    )
    local separator=${{words[(i)--]}}
    if (( separator < CURRENT )); then   # after it comes a command of the user's own
        shift $separator words
        (( CURRENT -= separator ))
        _normal
        return
    fi
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    case $words[2] in
{cases}
    esac
}}
compdef _tenure tenure
"""


def _fish(words: list[Word]) -> str:
    lines = ["# tenure completion for fish: tenure completion fish > ~/.config/fish/completions/tenure.fish"]
    lines += [f"complete -c tenure -n __fish_use_subcommand -f -a {w.name} -d {_quoted(w.help)}" for w in words]
    for word in words:
        seen = f"-n '__fish_seen_subcommand_from {word.name}'"
        if word.choices:
            lines.append(f"complete -c tenure {seen} -f -a {_quoted(' '.join(word.choices))}")
        lines += [f"complete -c tenure {seen} -l {flag[2:]} -d {_quoted(about)}" for flag, about in word.options]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


SHELLS: dict[str, Callable[[list[Word]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
