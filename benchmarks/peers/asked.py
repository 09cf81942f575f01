"""What a peer's program is asked for. Plain Python; bullmq.mjs spells the same."""

from typing import Final

# What a worker is started for.
CONSUME: Final = "consume"  # its handlers note how many jobs they have run, and the processor time
DISPATCH: Final = "dispatch"  # they note when each job came
LATENESS: Final = "lateness"  # as above, with when it was due
RESULT: Final = "result"  # they return what they were given, and note the first job

NOTE_EVERY: Final = 100  # jobs; CONSUME notes the first one and then one of so many

# What a producer is asked, one JSON line each; it answers with one.
ADD: Final = "add"  # jobs, limit_s -> jobs, s
ADD_MANY: Final = "add_many"  # jobs, a_call, limit_s -> jobs, s
ONCE: Final = "once"  # -> at: when it began to add one
DELAY: Final = "delay"  # due: instants -> nothing
WAIT: Final = "wait"  # -> ms: from add to the result
