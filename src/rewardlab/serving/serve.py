"""Command `serve`: signature, checks, load and reload the model."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

from rewardlab.core.errors import PlanError, RewardlabError, require_packages
from rewardlab.core.settings import FramePolicyText, Help
from rewardlab.core.terminal import loading, one_line
from rewardlab.data.video import frame_policy
from rewardlab.models.remote import TOKEN_VARIABLE, read_token
from rewardlab.serving.listening import PACKAGES, is_loopback, require_port

# How long a thread may run Python before another that waits takes over. The model's threads need it only for a moment
# between two long calculations, and would wait 5 ms each time for the thread that handles HTTP.
_SWITCH_SECONDS = 0.0003


def serve(
    model: Annotated[str, Help("model to serve, such as pocket")],
    *,
    host: Annotated[
        str, Help(f"address to listen on; one that other machines can reach needs a token in {TOKEN_VARIABLE}")
    ] = "127.0.0.1",
    port: Annotated[int, Help("port to listen on; 0 takes a free one")] = 8000,
    root: Annotated[
        Path | str | None, Help("folder whose clips requests may name; without it requests must send the clips")
    ] = None,
    frames: FramePolicyText = "uniform:16",
    max_batch: Annotated[int, Help("score at most N clips together")] = 32,
    max_wait: Annotated[float, Help("delay a clip at most X ms to score it together with others", more=True)] = 5.0,
    queue: Annotated[
        int, Help("accept at most N clips at once, waiting or being scored; more get status 503", more=True)
    ] = 128,
    sessions: Annotated[int, Help("keep at most N live sessions", more=True)] = 64,
    drain: Annotated[int, Help("after SIGTERM, give requests under way N seconds to finish", more=True)] = 30,
) -> None:
    """Serve a model over HTTP and WebSocket until SIGTERM or Ctrl-C: clips, batches and live sessions.

    Requests already received are answered before it stops. SIGHUP loads the model again. Needs the extra `serve`.

    Examples:
        rewardlab serve pocket
        REWARDLAB_TOKEN=secret rewardlab serve pocket --host 0.0.0.0 --root clips
    """
    root = None if root is None else Path(root)
    frame_policy(frames)
    require_port(port)
    if min(max_batch, queue, sessions, drain) < 1 or max_wait < 0:
        raise PlanError("max-batch, queue, sessions and drain must be at least 1, and max-wait not negative")
    if root is not None and not root.is_dir():
        raise PlanError(f"--root must be a folder, got {root}")
    if not is_loopback(host) and not read_token():
        raise PlanError(f"other machines can reach {host}; set a token in {TOKEN_VARIABLE} first")
    require_packages("serve", *PACKAGES, extra="serve")
    from rewardlab.serving.app import create_app, create_server
    from rewardlab.serving.batching import BatchingSettings, load_served_model
    from rewardlab.serving.http import serve_until_stopped, server_config

    with loading(f"loading {model}"):
        served = load_served_model(model)
    server = create_server(served, frames, root, BatchingSettings(max_batch, max_wait / 1000, queue), sessions)

    tasks: set[asyncio.Task[None]] = set()  # the event loop itself keeps no reference to them

    async def reload() -> None:
        try:
            await server.batcher.reload(lambda: load_served_model(model))
            print(one_line(f"loaded {model} again"), flush=True)
        except RewardlabError as error:
            print(one_line(f"rewardlab: the model stays as it is: {error}"), file=sys.stderr, flush=True)

    def start_reload() -> None:
        task = asyncio.create_task(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def started(url: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, start_reload)
        print(one_line(f"serving {served.name} at {url}"), flush=True)

    sys.setswitchinterval(_SWITCH_SECONDS)
    config = server_config(create_app(server, host), drain=drain, websockets=True)
    serve_until_stopped(config, host, port, started)
