"""The masked CRC-32C that guards every record of a TFRecord file."""

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.numba_jit import compiled

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_MASK = 0xA282EAD8


def masked_crc(data: bytes) -> int:
    """Return the checksum as it is stored: rotated by 15 bits, plus a constant."""
    crc = int(_crc(np.frombuffer(data, np.uint8), _TABLES))
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _tables() -> NDArray[np.uint32]:
    """Return eight tables of 256 numbers: what a byte does to the checksum when 0 to 7 bytes come after it."""
    tables = np.zeros((8, 256), np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(_POLYNOMIAL), values >> 1).astype(np.uint32)
    tables[0] = values
    for number in range(1, 8):
        before = tables[number - 1]
        tables[number] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_TABLES = _tables()


@compiled
def _crc(data: NDArray[np.uint8], tables: NDArray[np.uint32]) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    whole = len(data) // 8 * 8
    for i in range(0, whole, 8):
        a = crc ^ (
            np.uint32(data[i])
            | np.uint32(data[i + 1]) << np.uint32(8)
            | np.uint32(data[i + 2]) << np.uint32(16)
            | np.uint32(data[i + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, a & np.uint32(0xFF)]
            ^ tables[6, a >> np.uint32(8) & np.uint32(0xFF)]
            ^ tables[5, a >> np.uint32(16) & np.uint32(0xFF)]
            ^ tables[4, a >> np.uint32(24)]
            ^ tables[3, data[i + 4]]
            ^ tables[2, data[i + 5]]
            ^ tables[1, data[i + 6]]
            ^ tables[0, data[i + 7]]
        )
    for i in range(whole, len(data)):
        crc = tables[0, (crc ^ np.uint32(data[i])) & np.uint32(0xFF)] ^ crc >> np.uint32(8)
    return crc ^ np.uint32(0xFFFFFFFF)
