"""How much is measured: by default in under ten minutes, in full, or next to nothing to try the harness."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 7  # of each pair
    jobs: int = 5_000  # in drain-1
    queues: int = 40
    jobs_per_queue: int = 250  # in drain-40
    wakes: int = 400
    wake_blocks: int = 4  # in which ours and the floor's take turns
    inserts: int = 1_000  # single ones, and by each of the writers together
    calls: int = 10  # of insert_many
    per_call: int = 1_000
    writers: int = 16
    idle: float = 30.0  # seconds
    memory: tuple[int, ...] = (1_000,)  # jobs of each queue until the memory is looked at again
    horizon: int = 20_000
    horizon_edge: int = 2_000
    history: tuple[int, ...] = (1_000_000,)  # finished rows, each against none
    history_jobs: int = 1_000
    history_rounds: int = 60  # short and many: what disturbs the machine for a second disturbs both sides
    lives: int = 7  # boots, crashes, hand-overs


DEFAULT = Sizes()
# An hour's worth: a job a second in each queue.
FULL = Sizes(rounds=9, memory=(1_000, 3_600), history=(1_000_000, 10_000_000), lives=15)
TINY = Sizes(
    rounds=1,
    jobs=50,
    queues=2,
    jobs_per_queue=20,
    wakes=8,
    wake_blocks=1,
    inserts=10,
    calls=1,
    per_call=20,
    writers=2,
    idle=0.5,
    memory=(5,),
    horizon=60,
    horizon_edge=20,
    history=(500,),
    history_jobs=50,
    history_rounds=1,
    lives=1,
)
