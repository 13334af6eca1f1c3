"""The ledger of a run: every paid request and every reply, on disk at once, so that nothing is paid for twice.

One JSON object per line of `ledger.jsonl` in the run folder, each with the model: `{"sent": KEY}` before a request goes
out, then either `{"refused": KEY}` (the server turned it down, so it cost nothing) or `{"key": KEY, "input", "output",
"cost", "reply"}`. All that is known is read from these lines; one that is torn, or no such object, is passed over.
"""

import asyncio
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from rewardlab.core.errors import StopRun
from rewardlab.core.limits import BODY_MB
from rewardlab.core.records import parse_json
from rewardlab.core.trial import ScoreInfo
from rewardlab.models.contract import Budget

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class Spent:
    """What was spent so far; `cost` counts replies of a known price only, `highest_cost` is the highest of them."""

    requests: int = 0  # that went out and were not refused, whether or not a reply came back
    replies: int = 0
    priced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    highest_cost: float = 0.0

    def after(self, entry: dict[str, Any]) -> "Spent":
        """Return the sums with one more line of the ledger."""
        if "sent" in entry:
            return replace(self, requests=self.requests + 1)
        if "refused" in entry:
            return replace(self, requests=self.requests - 1)
        cost = entry["cost"]
        return replace(
            self,
            replies=self.replies + 1,
            priced=self.priced + (cost is not None),
            input_tokens=self.input_tokens + (entry["input"] or 0),
            output_tokens=self.output_tokens + (entry["output"] or 0),
            cost=self.cost + (cost or 0.0),
            highest_cost=max(self.highest_cost, cost or 0.0),
        )

    @property
    def committed(self) -> float:
        """Return the cost with every request of unknown price, such as one still under way, taken for the highest."""
        return self.cost + (self.requests - self.priced) * self.highest_cost


class Ledger:
    """Keeps what one model paid for, and stops the run before more is spent than the budget allows.

    Models of the same run share the file, and so the budget. Without a folder everything is kept in memory.
    """

    def __init__(self, budget: Budget, model: str) -> None:
        self.budget = budget
        self.model = model
        self._spent = Spent()
        self._paid: dict[str, dict[str, Any]] = {}  # the line of each reply, by the key of its request
        self._priced = False  # whether a reply to this very model had a price: another's tells nothing of its own
        self._file = LedgerFile(budget.folder) if budget.folder else None
        if self._file and self._file.path.exists() and self._file.path.stat().st_size:
            with self._file.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                torn = file.read() != b"\n"
            if torn:
                _append(self._file.path, b"\n")

    @property
    def spent(self) -> Spent:
        """Return what the models of this run have spent so far."""
        self._read_new_lines()
        return self._spent

    @property
    def price_unknown(self) -> bool:
        """Tell whether the cost is limited while nothing tells yet what a request to this model costs."""
        return self.budget.max_cost is not None and not self._priced

    def find(self, key: str) -> Any | None:
        """Return the reply to this request if it was paid for before."""
        self._read_new_lines()
        return self._paid[key]["reply"] if key in self._paid else None

    def usage(self, key: str) -> ScoreInfo:
        """Return the tokens and the cost of the reply to this request, as far as they are known."""
        self._read_new_lines()
        paid = self._paid.get(key, {})
        return ScoreInfo(input_tokens=paid.get("input"), output_tokens=paid.get("output"), cost=paid.get("cost"))

    def send(self, key: str) -> None:
        """Write down that a request goes out; raise StopRun instead if the budget does not allow it."""
        self._check_budget()
        self._write({"sent": key})

    def refuse(self, key: str) -> None:
        """Write down that the server turned the request down."""
        self._write({"refused": key})

    async def keep(self, key: str, tokens: tuple[int | None, int | None], cost: float | None, reply: Any) -> None:
        """Write down a reply; when this returns it survives any crash, of the machine too."""
        self._write({"key": key, "input": tokens[0], "output": tokens[1], "cost": cost, "reply": reply})
        if self._file:
            await asyncio.to_thread(_append, self._file.path, b"", sync=True)
        self._priced |= cost is not None

    def _check_budget(self) -> None:
        spent, budget = self.spent, self.budget
        if budget.max_requests is not None and spent.requests >= budget.max_requests:
            raise StopRun(f"the budget of {budget.max_requests:,} requests is spent; allow more with --max-requests")
        if budget.max_cost is None:
            return
        if spent.replies > spent.priced:
            raise StopRun(
                "the cost is limited, but the server does not say how many tokens it used; use --max-requests instead"
            )
        if spent.committed + spent.highest_cost > budget.max_cost:
            raise StopRun(
                f"the next request may cost {spent.highest_cost:.4g}, and {spent.committed:.4g} of "
                f"{budget.max_cost:.4g} are spent; allow more with --max-cost"
            )

    def _write(self, entry: dict[str, Any]) -> None:
        entry["model"] = self.model
        if self._file is None:
            self._apply(entry)
        else:
            _append(self._file.path, json.dumps(entry).encode() + b"\n")

    def _read_new_lines(self) -> None:
        """Take in the lines that were written since the last read, by this model or another of the run."""
        for entry in self._file.new_entries() if self._file else ():
            self._apply(entry)

    def _apply(self, entry: dict[str, Any]) -> None:
        self._spent = self._spent.after(entry)
        if "key" in entry:
            self._paid[entry["key"]] = entry


class LedgerFile:
    """Follows the ledger of a run folder: each read takes in the lines that are new."""

    def __init__(self, folder: Path) -> None:
        self.path, self._offset, self._spent = folder / LEDGER, 0, Spent()

    def new_entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries that were written since the last read, by any model of the run."""
        if not self.path.is_file() or self.path.stat().st_size == self._offset:
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in _whole_lines(file):
                self._offset = file.tell()
                try:
                    entry = parse_json(line, allow_nonfinite=True)
                except ValueError:  # torn by a crash
                    continue
                if _is_entry(entry):
                    yield entry

    def read(self) -> Spent:
        """Return what all models of the run have spent so far."""
        for entry in self.new_entries():
            self._spent = self._spent.after(entry)
        return self._spent

    def forecast(self, done: float) -> str:
        """Return what paid models have cost, and will cost in all when this part of their trials is done."""
        spent = self.read()
        if not spent.replies or not done:
            return ""
        if not spent.priced:
            return f", about {(spent.input_tokens + spent.output_tokens) / done:,.0f} tokens in all"
        return f", cost {spent.cost:.4g}, about {spent.cost / done:.4g} in all"


def spent_by_model(folder: Path) -> dict[str, Spent]:
    """Return what the ledger of a run folder says of each model; empty where there is none."""
    found: dict[str, Spent] = {}
    for entry in LedgerFile(folder).new_entries():
        found[entry["model"]] = found.get(entry["model"], Spent()).after(entry)
    return found


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines that have an end; of one that is longer than any reply, a piece that cannot be read."""
    most = BODY_MB.in_bytes
    while line := file.readline(most):
        piece = line
        while len(piece) == most and not piece.endswith(b"\n"):
            piece = file.readline(most)
        if piece.endswith(b"\n"):
            yield line


def _is_entry(entry: Any) -> bool:
    """Tell whether a line says what a ledger says, in numbers that can be added."""
    if not isinstance(entry, dict) or not isinstance(entry.get("model"), str):
        return False
    if "sent" in entry or "refused" in entry:
        return "key" not in entry
    if not isinstance(entry.get("key"), str) or not {"input", "output", "cost", "reply"} <= entry.keys():
        return False
    kinds = {"input": int, "output": int, "cost": int | float}
    known = {name: kind for name, kind in kinds.items() if entry[name] is not None}
    return all(isinstance(entry[name], kind) and 0 <= entry[name] < math.inf for name, kind in known.items())


def _append(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write at the end of the file; where that fails the run stops, for what is not written down is paid for twice."""
    try:
        with path.open("ab") as file:
            file.write(data)
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        raise StopRun(f"cannot write {path}: {error.strerror}; free the space or fix the permission") from error
