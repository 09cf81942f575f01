"""Tasks of Django on tampu: enqueued by one program, run by `manage.py tampu_worker`."""

import json
from dataclasses import replace

from tests.django.projects import Project
from tests.servers import RunningServer

DONE = [True, True, True]


def test_tasks_run_and_their_results_can_be_had(project: Project) -> None:
    order, other = project.ask("make_orders", 2)
    ids = [
        *project.ask("enqueue", "add", [1, 2]),
        *project.ask("enqueue", "describe", []),
        *project.ask("enqueue", "charge", [order]),
    ]
    alone, is_same = project.ask("enqueue_async", "charge_async", [other])
    assert is_same
    waiting = project.ask("results", [*ids, alone])
    assert {(each["status"], each["attempts"]) for each in waiting} == {("READY", 0)}
    project.work()
    added, described, charged, charged_async = project.ask("results", [*ids, alone])
    assert (added["status"], added["value"], added["times"]) == ("SUCCESSFUL", 3, DONE)
    assert described["value"] == {"id": ids[1], "attempt": 1, "status": "RUNNING"}
    assert ids[1].endswith("@emails")
    assert (charged["value"], charged_async["value"]) == (1, 1)
    assert project.ask("charges") == [1, 1]
    assert max(map(len, ids)) < 64


def test_what_fails_is_told_with_its_error_and_is_not_run_again(project: Project) -> None:
    ids = project.ask("enqueue", "fail", ["no"]) + project.ask("enqueue", "return_object", [])
    log = project.work()
    failed, unusable = project.ask("results", ids)
    assert (failed["status"], failed["errors"], failed["attempts"]) == ("FAILED", ["ValueError"], 1)
    assert failed["args"] == ["no"]
    assert unusable["errors"] == ["TypeError"]
    assert log.count("state=FAILED") == 2
    assert "ValueError: no" in log.partition("state=FAILED")[2]


def test_a_task_is_tried_again_as_its_backend_says_and_ends_once(project: Project) -> None:
    project = project.with_settings(options={"attempts": 3, "backoff": None})
    assert "Invalid backoff" in project.manage("check").stderr
    project = project.with_settings(options={"attempts": 3})
    (id,) = project.ask("enqueue", "fail", ["no"])
    with project.worker() as worker:
        (failed,) = project.ask("wait", [id])
        log = worker.log.read_text()
    assert (failed["status"], failed["attempts"], failed["errors"]) == ("FAILED", 3, ["ValueError"])
    assert (log.count("state=RUNNING"), log.count("state=FAILED")) == (3, 1)


def test_a_crash_of_the_worker_is_no_failure_of_the_task(project: Project) -> None:
    (id,) = project.ask("enqueue", "die_once", [])
    with project.worker("--processes", "1") as worker:
        (finished,) = project.ask("wait", [id])
        worker.wait_for("ended with")
        (hopeless,) = project.ask("wait", project.ask("enqueue", "die", []))
        worker.wait_for("ended with", times=3)  # it is not repeated for ever
    assert (finished["status"], finished["value"]) == ("SUCCESSFUL", 2)
    assert (hopeless["status"], hopeless["errors"]) == ("FAILED", ["JobFailed"])


def test_a_task_may_be_snoozed(project: Project) -> None:
    (id,) = project.ask("enqueue", "snooze_once", [])
    with project.worker() as worker:
        (finished,) = project.ask("wait", [id])
        log = worker.log.read_text()
    assert (finished["status"], finished["value"]) == ("SUCCESSFUL", 1)
    assert log.count("state=SUCCESSFUL") == 1


def test_what_is_no_task_is_buried(project: Project) -> None:
    names = ["shop.tasks.plain", "shop.tasks.gone", "nowhere.task", "x"]
    ids = [project.ask("enqueue_under", name)[0] for name in names]
    log = project.work()
    assert log.count("buried (unrecoverable, attempt 1)") == len(names)
    assert "Task 'shop.tasks.plain': is not a task of Django." in log
    assert "Task 'nowhere.task': cannot be imported." in log
    assert all(project.ask("is_missing", id) for id in [*ids, "123", "123@default"])


def test_wrong_settings_are_reported_in_one_sentence_each(project: Project) -> None:
    wrong = {
        "E001": project.with_settings(options={"attemps": 3}),
        "E001 ": project.with_settings(queues=["q" * 40]),
        "E002": project.with_settings(options={"enqueue": "on_commit", "database": "other"}),
        "W001": project.with_settings(without="tampu.django"),
        "E004": project.with_settings(dashboard=5),
    }
    said = {
        "E001": 'TASKS["default"]: Invalid attemps 3: unknown option (did you mean attempts?)',
        "E001 ": "must have at most 36 characters, because it is part of result ids",
        "E002": 'TASKS["default"]: DATABASES has no "other", which the option database names.',
        "W001": 'TASKS["default"]: add "tampu.django" to INSTALLED_APPS',
        "E004": "TAMPU_DASHBOARD_URL must be a path such as /jobs/ or a URL.",
    }
    for name, each in wrong.items():
        lines = [line for line in each.manage("check").stderr.splitlines() if "(tampu." in line]
        assert len(lines) == 1, lines
        assert f"(tampu.{name.strip()})" in lines[0]
        assert said[name] in lines[0]
    assert project.manage("check").stderr == ""
    examined = wrong["E001"].examine()
    assert (examined.returncode, examined.stderr.count("\n")) == (2, 1)
    assert "Invalid attemps 3: unknown option" in examined.stderr
    assert "memory" in project.examine().stdout
    refused = wrong["E001"].manage("tampu_worker")
    assert refused.returncode == 1
    assert "unknown option" in refused.stderr


def test_the_worker_refuses_what_it_cannot_run(project: Project) -> None:
    unknown = project.manage("tampu_worker", "--backend", "other")
    assert (unknown.returncode, unknown.stderr) == (1, "TASKS has no 'other'; it has default.\n")
    closed = project.manage("tampu_worker", "--queue", "emails=2", "-q", "nope=2")
    told = "QUEUES has no 'nope'; it has default, emails.\n"
    assert (closed.returncode, closed.stderr) == (1, told)
    burst = ("tampu_worker", "--burst", "--queue", "nope=2")
    assert "nope=2" in project.with_settings(queues=[]).manage(*burst).stdout
    other = project.with_settings(backend="django_tasks.backends.dummy.DummyBackend")
    refused = other.manage("tampu_worker")
    assert refused.stderr.endswith("its BACKEND is not tampu.django.TampuBackend.\n")


def test_what_doctor_needs_is_said_in_one_sentence(project: Project) -> None:
    other = project.examine("other")
    told = "tampu: TASKS has no 'other'; it has default.\n"
    assert (other.returncode, other.stderr) == (2, told)
    unset = replace(project, has_settings=False).examine()
    told = "tampu: Set DJANGO_SETTINGS_MODULE to your settings, for example mysite.settings.\n"
    assert (unset.returncode, unset.stderr) == (2, told)


def test_wrong_options_of_a_task_are_refused_by_django_s_error(project: Project) -> None:
    for each in project.ask("problem_with", {"attempt": 5}):
        assert each.startswith("Invalid attempt 5: unknown option (did you mean attempts?); a task")
    expected = "Invalid run_after '5m': expected an aware datetime or a timedelta."
    assert project.ask("problem_with", {"run_after": "5m"}) == [expected, expected]
    assert len(project.ask("problem_with", {"attempt": 5})) == 2


def test_the_server_holds_arguments_as_plain_data(project: Project, running: RunningServer) -> None:
    project.ask("enqueue", "add", [1, 2])
    with running.admin() as admin:
        (entry,) = admin.xrange("{chasqui:default}:stream")
    assert entry[1][b"n"] == b"shop.tasks.add"
    assert json.dumps(project.ask("data_of", "default")) == '{"args": [1, 2], "kwargs": {}}'
