"""`hapdsl completion SHELL`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hapdsl.commands.output import Output, json_option

COMPLETE = "_HAPDSL_COMPLETE"  # set by the scripts, for hapdsl to answer
WHERE = {
    "bash": 'eval "$(hapdsl completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(hapdsl completion zsh)"   # in ~/.zshrc',
    "fish": "hapdsl completion fish > ~/.config/fish/completions/hapdsl.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option
@click.pass_obj
def command(out: Output, shell: str) -> None:
    """Print a script that completes hapdsl's verbs, options and files on TAB.

    \b
    bash:  eval "$(hapdsl completion bash)"   in ~/.bashrc
    zsh:   eval "$(hapdsl completion zsh)"    in ~/.zshrc
    fish:  hapdsl completion fish > ~/.config/fish/completions/hapdsl.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.get_current_context().find_root().command, {}, "hapdsl", COMPLETE).source()
    out.data({"shell": shell, "script": script, "install": WHERE[shell]}, script)
