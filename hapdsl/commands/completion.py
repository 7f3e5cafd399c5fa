"""`hapdsl completion SHELL`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hapdsl.commands.output import Output, json_option

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
    from hapdsl.cli import COMPLETE, cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "hapdsl", COMPLETE).source()
    out.data({"shell": shell, "script": script, "install": WHERE[shell]}, script)
