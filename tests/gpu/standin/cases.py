"""The common setup of many tests of order."""

from standin.driver import Driver

SEEDS = range(40)


class Bench:
    """Two streams and two allocations: `x` has old content until a memset in stream `a` has run."""

    def __init__(self, driver: Driver, flags: int = 1, size: int = 100) -> None:
        self.driver, self.size = driver, size
        self.a, self.b, self.event = driver.stream(flags), driver.stream(flags), driver.event()
        self.x, self.y = driver.alloc(size), driver.alloc(size)
        driver.poke(self.x, b"o" * size)
        driver.poke(self.y, b"?" * size)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.a, self.b):
            self.driver.cuStreamDestroy_v2(stream)
        self.driver.cuEventDestroy_v2(self.event)
        for address in (self.x, self.y):
            self.driver.cuMemFree_v2(address)

    def fill(self, letter: str = "n") -> None:
        self.driver.cuMemsetD8Async(self.x, ord(letter), self.size, self.a)

    def copy(self, stream: int) -> None:
        self.driver.cuMemcpyDtoDAsync_v2(self.y, self.x, self.size, stream)

    def record(self) -> None:
        self.driver.cuEventRecord(self.event, self.a)

    def wait(self) -> None:
        self.driver.cuStreamWaitEvent(self.b, self.event, 0)

    def copied(self, stream: int) -> str:
        self.driver.cuStreamSynchronize(stream)
        return self.driver.peek(self.y, 1).decode()


def outcomes(driver: Driver, trial, seeds=SEEDS, flags: int = 1) -> str:
    letters = []
    for seed in seeds:
        with driver.seeded(seed), Bench(driver, flags) as bench:
            letters.append(trial(bench))
    return "".join(letters)


def across(bench: Bench, wait: bool = True, events: bool = True) -> str:
    bench.fill()
    if events:
        bench.record()
    if wait:
        bench.wait()
    bench.copy(bench.b)
    return bench.copied(bench.b)
