"""Forms as strangers send them: the whole body is in memory already, so files are cut out of it and never spooled."""

from typing import Any

from python_multipart.multipart import MultipartParser, parse_options_header

from rewardlab.http_server.refused_request import RefusedRequest

Form = dict[str, str | memoryview]  # texts, and files as views of the body, by name


def read_form(body: bytes, content_type: str, *, most: int) -> Form:
    """Return the texts and files of a form by name, at most so many of each."""
    reader = _FormReader(most)
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if boundary is None:
        raise RefusedRequest(422, "expected a form, multipart/form-data with a boundary")
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        parser.write(body)
        parser.finalize()
    except (KeyError, AssertionError, ValueError) as error:  # the parser's own errors are ValueErrors
        raise RefusedRequest(400, f"the form cannot be read ({type(error).__name__})") from error
    return reader.form


class _FormReader:
    """Takes what a parser finds in a body, part by part."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.form: Form = {}
        self.counts = {"files": 0, "fields": 0}
        self._begin()

    def callbacks(self) -> Any:
        """Return what the parser calls, under its names."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.data.append(memoryview(data)[start:end]),
            "on_part_end": self._end,
            "on_header_field": lambda data, start, end: self.header_name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self.header_value.extend(data[start:end]),
            "on_header_end": self._end_header,
        }

    def _begin(self) -> None:
        self.data: list[memoryview] = []
        self.disposition = b""
        self.header_name, self.header_value = bytearray(), bytearray()

    def _end_header(self) -> None:
        if self.header_name.lower() == b"content-disposition":
            self.disposition = bytes(self.header_value)
        self.header_name, self.header_value = bytearray(), bytearray()

    def _end(self) -> None:
        options = parse_options_header(self.disposition)[1]
        kind = "files" if b"filename" in options else "fields"
        self.counts[kind] += 1
        if self.counts[kind] > self.most:
            raise RefusedRequest(400, f"the form has more than {self.most} {kind}")
        value = self.data[0] if len(self.data) == 1 else memoryview(b"".join(self.data))
        self.form[options[b"name"].decode()] = value if kind == "files" else bytes(value).decode()
