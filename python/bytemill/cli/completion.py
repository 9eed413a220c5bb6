"""`bytemill --install-completion`: completion of commands and options in the shell."""

from cyclopts.completion.install import create_install_completion_command

from bytemill.cli.app import app

install = create_install_completion_command(app.install_completion, add_to_startup=True)
