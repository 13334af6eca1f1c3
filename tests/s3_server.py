"""An S3 server on loopback, in memory: as much of the protocol as Arrow's client speaks, multipart uploads included."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.models.loopback import LoopbackHandler, serving


@dataclass
class Objects:
    """What the server holds, and what it was asked to write."""

    stored: dict[str, bytes] = field(default_factory=dict)  # by bucket/key
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    full: bool = False  # every write is refused, as by a store without room

    def listing(self, bucket: str, prefix: str, delimiter: str) -> str:
        keys = sorted(k.removeprefix(f"{bucket}/") for k in self.stored if k.startswith(f"{bucket}/{prefix}"))
        below = {k[: k.index(delimiter, len(prefix)) + 1] for k in keys if delimiter and delimiter in k[len(prefix) :]}
        own = [k for k in keys if not any(k.startswith(folder) for folder in below)]
        contents = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(self.stored[f'{bucket}/{k}'])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for k in own
        )
        folders = "".join(f"<CommonPrefixes><Prefix>{escape(k)}</Prefix></CommonPrefixes>" for k in sorted(below))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{folders}</ListBucketResult>"


class Handler(LoopbackHandler):
    objects: Objects

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def query(self) -> dict[str, str]:
        return {k: v[0] for k, v in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def missing(self) -> None:
        self.send(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def body(self) -> bytes:
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        data = b"".join(self.chunks()) if chunked else super().body()
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        found = b""
        while (match := re.match(rb"([0-9a-fA-F]+)[^\r\n]*\r\n", data)) and (size := int(match[1], 16)):
            found, data = found + data[match.end() : match.end() + size], data[match.end() + size + 2 :]
        return found

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def do_HEAD(self) -> None:
        bucket_exists = "/" not in self.key.strip("/")
        if bucket_exists:
            return self.send(200)
        if self.key not in self.objects.stored:
            return self.missing()
        data = self.objects.stored[self.key]
        return self.send(200, data, ETag=_etag(data), Last_Modified=_DATE)

    def do_GET(self) -> None:
        if "list-type" in self.query:
            bucket, asked = self.key.strip("/"), self.query
            text = self.objects.listing(bucket, asked.get("prefix", ""), asked.get("delimiter", ""))
            return self.send(200, text.encode(), Content_Type="application/xml")
        if self.key not in self.objects.stored:
            return self.missing()
        data = self.objects.stored[self.key]
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        return self.send(206 if "Range" in self.headers else 200, part, ETag=_etag(data), Last_Modified=_DATE)

    def do_PUT(self) -> None:
        data = self.body()
        if self.objects.full:
            return self.send(507, b"<Error><Code>InsufficientStorage</Code><Message>no room left</Message></Error>")
        if "uploadId" in self.query:
            self.objects.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = data
        else:
            self.objects.stored[self.key] = data
            self.objects.writes.append(self.key)
        return self.send(200, ETag=_etag(data))

    def do_POST(self) -> None:
        self.body()
        if self.objects.full:
            return self.send(507, b"<Error><Code>InsufficientStorage</Code><Message>no room left</Message></Error>")
        if "uploads" in self.query:
            name = f"upload-{len(self.objects.uploads)}"
            self.objects.uploads[name] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return self.send(200, text.encode())
        if "uploadId" in self.query:
            parts = self.objects.uploads.pop(self.query["uploadId"])
            self.objects.stored[self.key] = b"".join(parts[number] for number in sorted(parts))
            self.objects.writes.append(self.key)
            return self.send(200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")
        return self.send(400)

    def do_DELETE(self) -> None:
        self.objects.stored.pop(self.key, None)
        self.send(204)


_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def _etag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def s3_server() -> Iterator[tuple[str, Objects]]:
    """Give the address of a running server and what it holds."""
    objects = Objects()
    with serving(type("Bound", (Handler,), {"objects": objects})) as url:
        yield url, objects
