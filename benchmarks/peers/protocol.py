"""Requests to a peer's programs. Imports no package; `bullmq.mjs` uses the same texts."""

from typing import Final

# Scenarios that a worker is started for. They decide what its handlers write as notes.
CONSUME: Final = "consume"  # how many jobs have run, the time, and the processor time
DISPATCH: Final = "dispatch"  # when each job ran
LATENESS: Final = "lateness"  # the same, with the due time of each job
RESULT: Final = "result"  # the first job only; handlers return their data

# Scenarios of flow control. Producers add other jobs in them, or the worker has another limit.
PRIORITIES: Final = "priorities"  # as CONSUME, with jobs of two priorities in turns
OVERTAKE: Final = "overtake"  # as CONSUME, with slow jobs; urgent ones write when they ran
RATE: Final = "rate"  # when each job ran, with a rate that all jobs share
OPEN_RATE: Final = "open_rate"  # as CONSUME, with a rate that is never reached
CONCURRENCY: Final = "concurrency"  # as CONSUME, with so many at a time for each value

# Of flows.
JOINS: Final = "joins"  # when each join of a group of jobs ran

COUNTED: Final = frozenset({CONSUME, PRIORITIES, OVERTAKE, OPEN_RATE, CONCURRENCY})
NOTE_EVERY: Final = 100  # in these, the first job and then every hundredth writes a note

URGENT: Final = "urgent"  # the data of an urgent job
SLOW_JOB_S: Final = 0.01  # how long a job of OVERTAKE takes
RATE_PER_S: Final = 200
OPEN_RATE_PER_S: Final = 1_000_000
VALUES: Final = 100
RUN_PER_VALUE: Final = 10
GROUPS: Final = 100
GROUP_SIZE: Final = 100

# Requests to a producer. Each is a line of JSON, and so is each answer.
ADD: Final = "add"  # jobs, limit_s -> jobs, s
ADD_MANY: Final = "add_many"  # jobs, jobs_per_call, limit_s -> jobs, s
ADD_ONE: Final = "add_one"  # -> at: when the call began
ADD_URGENT: Final = "add_urgent"  # -> the same, for a job that goes before all others
ADD_DELAYED: Final = "add_delayed"  # due: a list of times -> nothing
ADD_GROUPS: Final = "add_groups"  # groups, size -> at: when the first call began
WAIT_FOR_RESULT: Final = "wait_for_result"  # -> ms: from the call to the result
