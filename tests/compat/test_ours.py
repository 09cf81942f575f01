"""Programs for chasquimq run with ours, and see what they would see with the real one."""

import json
import sys

import pytest

from tampu.compat import chasquimq
from tests.compat.either import GOLDEN, printed_by, with_ours
from tests.compat.surface import pinned, surface_of
from tests.servers import RunningServer


class TestProgram:
    @pytest.mark.every_server
    def test_it_runs_with_ours_on_every_server(self, running: RunningServer) -> None:
        assert with_ours("program.py", running.url) == "all is well\n"


class TestMistakes:
    def test_ours_are_told_as_theirs(self, running: RunningServer) -> None:
        told = json.loads(with_ours("mistakes.py", running.url))
        for case, raised in GOLDEN.items():
            if case == "bad cron":  # what is wrong with it, either parser has its own words for
                assert told.pop(case).startswith(raised.partition("Invalid")[0])
            else:
                assert told.pop(case) == raised, case
        assert told == {}


class TestSurface:
    def test_names_signatures_and_defaults_are_theirs(self) -> None:
        assert json.loads(json.dumps(surface_of(chasquimq))) == pinned()

    def test_141_the_version_is_a_text(self) -> None:
        assert chasquimq.version().startswith("1.3.0+tampu.")

    def test_its_modules_have_the_names_of_theirs_and_the_same_things_in_them(self) -> None:
        look = (
            "import sys, tampu.compat.chasquimq as ours; sys.modules['chasquimq'] = ours\n"
            "import chasquimq.queue, chasquimq.worker, chasquimq.job, chasquimq.errors\n"
            "import chasquimq.repeat, chasquimq.queue_events\n"
            "from chasquimq import _native, _url\n"
            "homes = 'queue.Queue worker.Worker job.Job errors.UnrecoverableError "
            "errors.NotSupportedError repeat.RepeatPattern repeat.BackoffSpec "
            "repeat.MissedFiresPolicy repeat.RepeatableMeta queue_events.QueueEvents "
            "queue_events.QueueEvent _native.Producer _native.Consumer _native.Scheduler'\n"
            "for home in homes.split():\n"
            "    module, name = home.split('.')\n"
            "    module = getattr(ours, module)\n"
            "    assert getattr(module, name) is getattr(ours, name), home\n"
            "from chasquimq._encoding import decode_payload, encode_payload\n"
            "assert decode_payload(encode_payload({'x': b'1'})) == {'x': b'1'}\n"
            "assert _native._Job.__slots__ and _native.version() == ours.version()\n"
            "print('same')"
        )
        assert printed_by(sys.executable, "-c", look) == "same\n"
