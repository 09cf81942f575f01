"""`manage.py tampu_worker`: the command `tampu worker`, with Django set up."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, handle_default_options

from tampu.cli.main import main
from tampu.django.backend import TampuBackend
from tampu.django.tasks_api import task_backends


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    """Runs tasks until Ctrl-C or SIGTERM."""

    help = (
        "Runs Django's tasks until Ctrl-C or SIGTERM. Other options are those of `tampu worker`, "
        "such as --processes 4, --reload or --health-port 8080."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of its own."""
        parser.add_argument("--backend", default="default", help="The alias in TASKS.")
        parser.add_argument(
            "--app", metavar="MODULE:APP", help="Run the tasks of this app of tampu instead."
        )
        parser.add_argument(
            *("-q", "--queue"),
            action="append",
            default=[],
            metavar="NAME[=CONCURRENCY]",
            help="Serve this queue, with so many jobs at a time. Can be repeated. Default: QUEUES.",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        """Take the options that Django knows, and leave the others to tampu."""
        parser = self.create_parser(argv[0], argv[1], allow_abbrev=False)
        options, others = parser.parse_known_args(argv[2:])
        handle_default_options(options)
        try:
            self.check()
            _run(options.backend, options.app, queues=options.queue, others=others)
        except CommandError as error:
            self.stderr.write(str(error))
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as Django has it
        """Run from `call_command`."""
        del args
        _run(options["backend"], options["app"], queues=options["queue"], others=[])


def _run(backend: str, app: str | None, *, queues: list[str], others: list[str]) -> None:
    home = str(Path(sys.argv[0]).resolve().parent)
    paths = [home, os.environ.get("PYTHONPATH", "")]
    # A supervisor starts its processes with the command line and the environment that it finds.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    reload = ["--reload-dir", home] if "--reload" in others else []
    if app is None:
        _check_queues(_check_alias(backend), queues)
    target = app or f"tampu.django.worker:{backend}"
    served = [f"--queue={each}" for each in queues]
    sys.argv = ["tampu", "worker", target, *reload, *served, *others]
    main()


def _check_alias(alias: str) -> str:
    if alias not in task_backends.settings:
        known = ", ".join(task_backends.settings)
        raise CommandError(f"TASKS has no {alias!r}; it has {known}.")
    if not isinstance(task_backends[alias], TampuBackend):
        raise CommandError(f'TASKS["{alias}"]: its BACKEND is not tampu.django.TampuBackend.')
    return alias


def _check_queues(alias: str, given: list[str]) -> None:
    """Refuse a queue that no task can use: `QUEUES` names all of them, unless it is empty."""
    known = task_backends[alias].settings.queues
    for each in given:
        name = each.partition("=")[0]
        if known and name not in known:
            raise CommandError(f"QUEUES has no {name!r}; it has {', '.join(known)}.")
