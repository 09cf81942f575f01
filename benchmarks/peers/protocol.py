"""Requests to a peer's programs. Imports no package; `bullmq.mjs` uses the same texts."""

from typing import Final

# Scenarios that a worker is started for. They decide what its handlers write as notes.
CONSUME: Final = "consume"  # how many jobs have run, the time, and the processor time
DISPATCH: Final = "dispatch"  # when each job ran
LATENESS: Final = "lateness"  # the same, with the due time of each job
RESULT: Final = "result"  # the first job only; handlers return their data

NOTE_EVERY: Final = 100  # in CONSUME, the first job and then every hundredth writes a note

# Requests to a producer. Each is a line of JSON, and so is each answer.
ADD: Final = "add"  # jobs, limit_s -> jobs, s
ADD_MANY: Final = "add_many"  # jobs, jobs_per_call, limit_s -> jobs, s
ADD_ONE: Final = "add_one"  # -> at: when the call began
ADD_DELAYED: Final = "add_delayed"  # due: a list of times -> nothing
WAIT_FOR_RESULT: Final = "wait_for_result"  # -> ms: from the call to the result
