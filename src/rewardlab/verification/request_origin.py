"""Which pages may ask: only the one that this server sent itself."""

from rewardlab.http_server.refused_request import RefusedRequest
from rewardlab.http_server.request_limits import App, Receive, Scope, Send, header

_OWN_PAGES = (b"", b"none", b"same-origin")  # Sec-Fetch-Site of our page, of an address that was typed, of programs


def same_origin_only(app: App, open_paths: frozenset[str]) -> App:
    """Return the application without requests that a page from elsewhere makes; links to open paths are followed."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in open_paths:
            _require_own_page(scope)
        await app(scope, receive, send)

    return guarded


def _require_own_page(scope: Scope) -> None:
    origin, host = header(scope, b"origin"), header(scope, b"host")
    own = (b"", b"http://" + host, b"https://" + host)  # TLS may stand in front of this server
    if origin not in own or header(scope, b"sec-fetch-site") not in _OWN_PAGES:
        raise RefusedRequest(
            403, "only the page of this server may ask; open the address that `rewardlab verify` prints"
        )
