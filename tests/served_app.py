"""A uvicorn server on loopback, in a thread of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


@contextmanager
def served(config: uvicorn.Config) -> Iterator[str]:
    """Serve until the block ends; give the address."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        started = threading.Event()
        while not server.started:
            assert thread.is_alive()
            started.wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
