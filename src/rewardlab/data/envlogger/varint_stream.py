"""Bytes that are read from their start to their end, with numbers of variable length among them."""


class VarintStream:
    """A position in bytes; ValueError where more is asked for than is there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def read(self, size: int) -> bytes:
        """Return so many bytes."""
        end = self.place + size
        if end > len(self.data):
            raise ValueError(f"{size:,} bytes are expected, {len(self.data) - self.place:,} are left")
        found = self.data[self.place : end]
        self.place = end
        return found

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.read(len(self.data) - self.place)

    def number(self) -> int:
        """Return a number of variable length."""
        value = shift = 0
        while shift < 70:
            (byte,) = self.read(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number does not end")

    def counted(self, count: int) -> int:
        """Return a count of things to read, each of which takes a byte at least."""
        if count > len(self.data) - self.place:
            raise ValueError(f"{count:,} things are promised, {len(self.data) - self.place:,} bytes are left")
        return count


def varint_bytes(value: int) -> bytes:
    """Return a number in variable length."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
