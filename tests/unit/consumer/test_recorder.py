"""Which jobs are timed, and which failures belong together."""

from collections import Counter

from tampu.consumer.recorder import fingerprint_of
from tampu.consumer.sampling import Sampler
from tampu.wire.dead import Failure

TRACE = 'Traceback:\n  File "shop.py", line {line}, in send\n  File "mail.py", line 9, in {name}\n'


def feed(sampler: Sampler, names: list[str], now_ms: int) -> Counter[str]:
    """The weight that was chosen of each name."""
    weights: Counter[str] = Counter()
    for at, weight in sampler.choose(names, Counter(names), now_ms):
        weights[names[at]] += weight
    return weights


def test_every_job_of_a_quiet_task_is_timed() -> None:
    sampler = Sampler()
    for second in range(5):
        assert feed(sampler, ["mail"] * 50, 1000 * second) == {"mail": 50}


def test_of_a_busy_task_few_jobs_stand_for_all() -> None:
    sampler, chosen, weight = Sampler(), 0, 0
    for batch in range(1000):  # 500 000 jobs in ten seconds
        found = list(sampler.choose(["mail"] * 500, {"mail": 500}, 5000 + 10 * batch))
        chosen += len(found)
        weight += sum(each for _, each in found)
    assert chosen < 20_000
    assert abs(weight - 500_000) < 5_000


def test_a_quiet_task_beside_a_busy_one_is_timed_completely() -> None:
    sampler, weights = Sampler(), Counter[str]()
    for batch in range(200):
        weights += feed(sampler, ["busy"] * 499 + ["quiet"], 5000 + 10 * batch)
    assert weights["quiet"] == 200
    assert abs(weights["busy"] - 200 * 499) < 3_000


def test_a_task_that_becomes_quiet_is_timed_completely_again() -> None:
    sampler = Sampler()
    for batch in range(100):
        feed(sampler, ["mail"] * 500, 5000 + 10 * batch)
    feed(sampler, ["mail"], 20_000)
    feed(sampler, ["mail"], 20_200)
    assert feed(sampler, ["mail"] * 9, 20_201) == {"mail": 9}


def test_errors_of_one_type_at_one_place_belong_together() -> None:
    one = Failure("ValueError", "ada", TRACE.format(line=3, name="post"))
    same = Failure("ValueError", "bob", TRACE.format(line=30, name="post"))
    elsewhere = Failure("ValueError", "ada", TRACE.format(line=3, name="dial"))
    other = Failure("KeyError", "ada", TRACE.format(line=3, name="post"))
    assert fingerprint_of(one) == fingerprint_of(same)
    assert len({fingerprint_of(each) for each in (one, elsewhere, other)}) == 3
