"""Headers that every answer of an application carries."""

from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders

from rewardlab.http_server.request_limits import App, Receive, Scope, Send


class WithHeaders:
    """Adds headers to the answers of the application inside."""

    def __init__(self, app: App, headers: Mapping[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)
