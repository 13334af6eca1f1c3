"""What a hostile server sends, on loopback: bodies without end, bombs, and answers that are no answers."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

Attack = Callable[[BaseHTTPRequestHandler], None]

_BLOCK = b"x" * 65536


def raw(*pieces: bytes) -> Attack:
    """Send these bytes as they are and close the connection."""
    return lambda handler: _write(handler, iter(pieces))


def endless(head: bytes, piece: bytes = _BLOCK) -> Attack:
    """Send the head and then the same piece for as long as anybody listens."""

    def attack(handler: BaseHTTPRequestHandler) -> None:
        _write(handler, _for_ever(head, piece))

    return attack


def answer(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n") -> Attack:
    """Send a whole answer, and say that the connection ends: else the next question may go into a closed one."""
    return raw(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body), body)


def gzip_bomb(gigabytes: int) -> bytes:
    """Return a gzip stream of about a thousandth of what it grows to."""
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + _deflated(gigabytes)


def deflate_bomb(gigabytes: int) -> bytes:
    """Return a raw deflate stream of about a thousandth of what it grows to."""
    return _deflated(gigabytes)


def _deflated(gigabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(10**7)) + packer.flush(zlib.Z_FULL_FLUSH)  # it stands alone, so it can be repeated
    return block * (100 * gigabytes)


def _for_ever(head: bytes, piece: bytes) -> Iterator[bytes]:
    yield head
    while True:
        yield piece


def _write(handler: BaseHTTPRequestHandler, pieces: Iterator[bytes]) -> None:
    handler.close_connection = True
    with suppress(OSError):  # the client has heard enough
        for piece in pieces:
            handler.wfile.write(piece)
        handler.wfile.flush()


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n\r\n"
_CHUNK = b"10000\r\n" + _BLOCK + b"\r\n"

ENDLESS: dict[str, Attack] = {
    "until it closes": endless(_OK + b"\r\n"),
    "chunks": endless(_CHUNKED, _CHUNK),
    "a terabyte is promised": endless(_OK + b"content-length: 1000000000000\r\n\r\n"),
    "an error": endless(b"HTTP/1.1 413 No\r\n\r\n"),
    "headers": endless(_OK, b"x-more: " + b"y" * 4000 + b"\r\n"),
    "one header": endless(_OK + b"x-more: ", b"y" * 4096),
    "trailers": endless(_CHUNKED + b"0\r\n", b"x-more: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
    "a chunk's extension": endless(_CHUNKED + b"1;", b"y" * 4096),
    "gzip": raw(_OK + b"content-encoding: gzip\r\n\r\n", gzip_bomb(2)),
    "deflate": raw(_OK + b"content-encoding: deflate\r\n\r\n", deflate_bomb(2)),
    "br": endless(_OK + b"content-encoding: br\r\n\r\n"),
    "zstd in gzip": endless(_OK + b"content-encoding: gzip, zstd\r\n\r\n"),
    "gzip in an error": raw(b"HTTP/1.1 413 No\r\ncontent-encoding: gzip\r\n\r\n", gzip_bomb(2)),
    "zlib as a charset": raw(b"HTTP/1.1 413 No\r\ncontent-type: text/plain; charset=zlib\r\n\r\n", deflate_bomb(2)),
    "lists": answer(b"[" + b"[]," * 2_600_000 + b"[]]"),
    "one long text": answer(b'{"choices": [{"message": {"content": "' + b"x" * 7_000_000 + b'"}}]}'),
}

NO_JSON: dict[str, bytes] = {
    "depth": b"[" * 100_000,
    "depth that is closed": b"[" * 100_000 + b"]" * 100_000,
    "objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "digits": b'{"choices": ' + b"9" * 5_000 + b"}",
    "half a surrogate pair": b'{"choices": [{"message": {"content": "\\ud800"}}]}',
    "bytes that are no text": b'{"choices": "\xff\xfe"}',
    "a byte order mark": b"\xef\xbb\xbf[]",
    "nothing": b"",
    "a number": b"7",
    "null": b"null",
    "two objects": b"{}{}",
}
