# ruff: noqa
# mypy: ignore-errors
# Calls the tasks of the shop, and prints what comes back as JSON.
import json

from shop import *

WAIT = 60


def told(call):
    try:
        return call()
    except Exception as error:
        builtin = [each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins"]
        named = type(error).__name__
        return f"{builtin[0] if named == 'ArgumentError' else named}: {error}"


def failed():
    result = fail.delay("value")
    value = result.get(timeout=WAIT, propagate=False)
    end = [result.state, result.ready(), result.failed(), result.successful()]
    return [repr(value), *end, repr(result.result), "boom" in result.traceback]


def revoked():
    result = add.apply_async((1, 1), countdown=600)
    before = result.state
    result.revoke()
    return before


print(
    json.dumps(
        {
            "delay": add.delay(2, 3).get(timeout=WAIT),
            "apply_async": add.apply_async((2,), {"y": 5}, countdown=0.1).get(timeout=WAIT),
            "retries": send.delay("ada@example.org").get(timeout=WAIT),
            "autoretry": told(lambda: fetch.delay("x").get(timeout=WAIT)),
            "retries spent": told(lambda: give_up.delay().get(timeout=WAIT)).split(":")[0],
            "failure": told(lambda: fail.delay("value").get(timeout=WAIT)),
            "failure, looked at": failed(),
            "chain": chain(add.s(1, 2), add.s(10), add.si(5, 5))().get(timeout=WAIT),
            "pipe": (add.s(1, 2) | add.s(10)).apply_async().get(timeout=WAIT),
            "chain, failed": told(lambda: (fail.s("key") | add.s(1))().get(timeout=WAIT)),
            "group": group(add.s(i, i) for i in range(3))().get(timeout=WAIT),
            "chord": chord([add.s(i, i) for i in range(4)])(total.s()).get(timeout=WAIT),
            "group in a chain": (group(add.s(1), add.s(2)) | total.s()).delay(9).get(timeout=WAIT),
            "send_task": app.send_task("shop.add", kwargs={"x": 1, "y": 1}).get(timeout=WAIT),
            "by its id": AsyncResult(send.delay("bob").id, app=app).get(timeout=WAIT)["to"],
            "linked": add.apply_async((1, 1), link=add.s(5)).get(timeout=WAIT),
            "direct": add(1, 2),
            "at once": [send.apply(("eve",)).get(), fail.apply(("key",)).state],
            "soft time limit": slow.delay().get(timeout=WAIT),
            "request": look.delay(1).get(timeout=WAIT),
            "request of a direct call": [look.request.retries, look.request.called_directly],
            "names": sorted(name for name in app.tasks if name.startswith("shop.")),
            "wrong arguments": told(lambda: add.delay(1)).split(":")[0],
            "revoked": revoked(),
            "unknown": [app.AsyncResult("nothing").state, app.AsyncResult("nothing").ready()],
            "timeout": told(lambda: add.apply_async((1, 1), countdown=600).get(timeout=0.2)),
            "signals": sorted(set(map(tuple, ENDED))),
        }
    )
)
