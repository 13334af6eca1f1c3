"""A uvicorn server on loopback, in a thread of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from rewardlab.serving.listening import address, listen


@contextmanager
def served(config: uvicorn.Config) -> Iterator[str]:
    """Serve until the block ends; give the address."""
    server, listening = uvicorn.Server(config), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=[[listening]])
    thread.start()
    try:
        started = threading.Event()
        while not server.started:
            assert thread.is_alive()
            started.wait(0.01)
        yield address("127.0.0.1", listening)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
