"""The result of a command: output, errors and exit code."""

import io
import json

from django.core.management import call_command


class Done:
    """The exit code of a command, and its output."""

    def __init__(self, *args, **options):
        out, err = io.StringIO(), io.StringIO()
        self.code = 0
        try:
            call_command(*args, stdout=out, stderr=err, **options)
        except SystemExit as end:
            self.code = end.code
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def json(self):
        return json.loads(self.out)
