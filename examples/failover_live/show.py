"""Start two workers, kill the one that counts, and watch the other go on: ``python show.py``."""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.abc import Process, TaskGroup
from anyio.streams.text import TextReceiveStream

HERE = Path(__file__).parent
KILL_AT = "step 15"


class Show:
    """What the workers say, as it comes; decides when the curtain falls."""

    def __init__(self) -> None:
        self.began, self.killed_at = time.monotonic(), 0.0
        self.after: list[str] = []

    def tell(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.2f} s  {what}", flush=True)

    async def follow(self, name: str, worker: Process, tasks: TaskGroup) -> None:
        """Print a worker's lines; kill it where it is to die, and end the show when its work has been done."""
        assert worker.stdout is not None
        rest = ""
        async for text in TextReceiveStream(worker.stdout):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self.tell(f"{name}: {line}")
                if self.killed_at:
                    self.after.append(line)
                    if line.endswith("done"):
                        tasks.cancel_scope.cancel()
                elif line.endswith(KILL_AT):
                    worker.kill()
                    self.killed_at = time.monotonic()
                    self.tell(f"{name} is killed with kill -9; its session ends within 4 s")
                    break


async def main() -> int:
    show = Show()
    with TemporaryDirectory(prefix="failover-") as directory:
        registry = (
            f"embedded://127.0.0.1:{os.environ.get('COUNT_PORT', '2181')}/count?data_dir={directory}/registry&linger=1"
        )
        environment = {**os.environ, "COUNT_REGISTRY": registry}
        command = [sys.executable, "-m", "aioelasticjob", "run", "jobs:app"]
        workers = [await anyio.open_process(command, cwd=HERE, env=environment, stderr=None) for _ in range(2)]
        try:
            async with anyio.create_task_group() as tasks:
                for name, worker in zip(("first", "second"), workers, strict=True):
                    tasks.start_soon(show.follow, name, worker, tasks)
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.terminate()
            for worker in workers:
                await worker.wait()
    went_on = bool(show.after) and show.after[0] == "FAILOVER step 16"
    show.tell("the other went on at step 16" if went_on else f"something else happened: {show.after[:3]}")
    return 0 if went_on else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main))
