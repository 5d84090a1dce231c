"""The command line in this process, from its `main` on: an error ends it here as it does for users."""

import os
import sys
from unittest import mock

from click.testing import CliRunner

from punctual import cli


class _Program:
    name = "punctual"

    def main(self, args, prog_name, **_more):
        with mock.patch.object(sys, "argv", [prog_name, *args]), mock.patch.dict(os.environ):
            cli.main()


def punctual(*words, text=None, env=None):
    """Run a command; return click's result, with exit_code, stdout and stderr."""
    return CliRunner().invoke(_Program(), words, input=text, env=env)
