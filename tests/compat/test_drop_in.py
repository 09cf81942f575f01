"""Programs written for chasquimq behave the same with the drop-in."""

import json
import sys
from textwrap import dedent

import pytest

from tampu.compat import chasquimq
from tests.compat.programs import EXPECTED_ERRORS, run_command, run_with_drop_in
from tests.compat.surface import expected_surface, surface_of
from tests.servers import RunningServer

MODULES = "errors job queue queue_events repeat worker _encoding _native _url"
"""The modules of the real package."""

TAKE_ITS_PLACE = """
import sys
import tampu.compat.chasquimq as ours
sys.modules["chasquimq"] = ours
"""


def run_python(code: str) -> str:
    return run_command(sys.executable, "-c", code)


def run_in_its_place(code: str) -> str:
    """Run code in which the drop-in has taken the place of chasquimq."""
    return run_python(TAKE_ITS_PLACE + dedent(code))


@pytest.mark.every_version
def test_a_program_runs_on_every_server(running: RunningServer) -> None:
    assert run_with_drop_in("program.py", running.url) == "ok\n"


def test_invalid_calls_raise_the_errors_of_chasquimq(running: RunningServer) -> None:
    raised = json.loads(run_with_drop_in("invalid_calls.py", running.url))
    for case, expected in EXPECTED_ERRORS.items():
        if case == "bad cron":  # the two cron parsers describe the problem differently
            assert raised.pop(case).startswith(expected.partition("Invalid")[0])
        else:
            assert raised.pop(case) == expected, case
    assert raised == {}


def test_names_signatures_and_defaults_are_those_of_chasquimq() -> None:
    assert json.loads(json.dumps(surface_of(chasquimq))) == expected_surface()


def test_the_version_is_a_text() -> None:
    """Behaviour 141."""
    assert chasquimq.version().startswith("1.3.0+tampu.")


class TestInPlaceOfChasquimq:
    def test_its_modules_are_ours_and_not_copies(self) -> None:
        code = f"""
        from importlib import import_module
        for name in "{MODULES}".split():
            module = import_module("chasquimq." + name)
            assert module is import_module("tampu.compat.chasquimq." + name), name
            assert module.__spec__.name == module.__name__ == "tampu.compat.chasquimq." + name
        print("same")
        """
        assert run_in_its_place(code) == "same\n"

    def test_each_class_is_in_the_module_where_chasquimq_has_it(self) -> None:
        homes = (
            "queue.Queue worker.Worker job.Job errors.UnrecoverableError errors.NotSupportedError "
            "repeat.RepeatPattern repeat.BackoffSpec repeat.MissedFiresPolicy "
            "repeat.RepeatableMeta queue_events.QueueEvents queue_events.QueueEvent "
            "_native.Producer _native.Consumer _native.Scheduler"
        )
        code = f"""
        import chasquimq.queue, chasquimq.worker, chasquimq.job, chasquimq.errors
        import chasquimq.repeat, chasquimq.queue_events
        from chasquimq import _native, _url
        for home in "{homes}".split():
            module, name = home.split(".")
            assert getattr(getattr(ours, module), name) is getattr(ours, name), home
        from chasquimq._encoding import decode_payload, encode_payload
        assert decode_payload(encode_payload({{"x": b"1"}})) == {{"x": b"1"}}
        assert _native._Job.__slots__ and _native.version() == ours.version()
        print("same")
        """
        assert run_in_its_place(code) == "same\n"

    def test_a_name_that_does_not_exist_is_an_import_error(self) -> None:
        code = """
        for statement in ("import chasquimq.nothing", "from chasquimq import nothing"):
            try:
                exec(statement)
            except ImportError as error:
                print(error)
        """
        unknown_module, unknown_name = run_in_its_place(code).splitlines()
        assert unknown_module == "No module named 'chasquimq.nothing'"
        assert unknown_name.startswith("cannot import name 'nothing'")

    def test_the_real_package_is_found_as_before_if_ours_is_only_imported(self) -> None:
        code = """
        import sys, types
        import tampu.compat.chasquimq as ours
        real = sys.modules["chasquimq"] = types.ModuleType("chasquimq")
        real.__path__ = []
        try:
            import chasquimq.queue
        except ModuleNotFoundError as error:
            print(error)
        """
        assert run_python(dedent(code)) == "No module named 'chasquimq.queue'\n"
