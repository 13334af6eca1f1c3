"""Attacks on `rewardlab data verify`: other pages, no token, paths that lead out, bodies too long, no verdicts."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx2

from rewardlab.cli import main
from rewardlab.core.errors import DataError, RunError
from rewardlab.data.row_listing import list_rows
from rewardlab.serving.verdicts import VerdictStore
from rewardlab.serving.verify import open_verification
from tests.serving.judged_data import TOKEN, judged_data, verification_server

SECRET = b"nobody may read this"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with rows whose videos are not below it: one by a link, and one that is no video."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "secret.mp4").write_bytes(SECRET)
    folder = judged_data(root / "data", 2)
    os.symlink(root / "secret.mp4", folder / "arm/link.mp4")
    (folder / "arm/text.mp4").write_bytes(SECRET)
    names = ("../secret.mp4", "/etc/passwd", "arm/../../secret.mp4", "arm/link.mp4", "arm/text.mp4", "arm")
    with (folder / "metadata.jsonl").open("a", encoding="utf-8") as handle:
        handle.writelines(json.dumps({"file_name": name, "task": f"open {name}", "reward": 1}) + "\n" for name in names)
    return folder


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[httpx2.Client]:
    with verification_server(data, overlap=1) as client:
        yield client


def a_verdict(client: httpx2.Client, **changes: Any) -> dict[str, Any]:
    rows = client.get("/api/state", params={"annotator": "anna"}).json()["rows"]
    return {"request": "request-12345", "annotator": "anna", "item": rows[0]["key"], "decision": "reject"} | changes


def test_no_address_of_the_api_answers_without_the_token(client: httpx2.Client) -> None:
    key = client.get("/api/state", params={"annotator": "anna"}).json()["rows"][0]["key"]
    paths = ("/api/state?annotator=anna", "/api/agreement", "/api/verified.jsonl", f"/api/rows/{key}/frames")
    for token in ("", "Bearer", "Bearer wrong", f"Bearer {TOKEN[:-1]}", TOKEN):
        for path in (*paths, f"/api/rows/{key}/last", f"/api/rows/{key}/rationale", "/nothing"):
            assert client.get(path, headers={"authorization": token}).status_code == 401
        assert client.post("/api/verdicts", json={}, headers={"authorization": token}).status_code == 401
    page = client.get("/", headers={"authorization": ""})  # it holds nothing by itself
    assert page.status_code == 200 and TOKEN not in page.text and key not in page.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ],
)
def test_a_page_from_elsewhere_gets_nothing_even_with_the_token(client: httpx2.Client, headers: dict[str, str]) -> None:
    own = {"origin": f"https://{client.base_url.netloc.decode()}", "sec-fetch-site": "same-origin"}
    assert client.get("/api/agreement", headers=own).status_code == 200  # behind a proxy that adds TLS
    asked = client.get("/api/state", params={"annotator": "anna"}, headers=headers)
    sent = client.post("/api/verdicts", json=a_verdict(client), headers=headers)
    for reply in (asked, sent, client.options("/api/verdicts", headers=headers)):
        assert reply.status_code in (400, 403)
        assert not any(name.startswith("access-control") for name in reply.headers)


def test_no_row_and_no_address_leads_out_of_the_dataset(client: httpx2.Client, data: Path) -> None:
    listing = list_rows(str(data))
    assert [problem.place for problem in listing.problems] == ["line 3", "line 4", "line 5"]
    for row in listing.rows[2:]:  # a link that leads out, a text, a folder
        for kind in ("frames", "last"):
            reply = client.get(f"/api/rows/{row.key}/{kind}")
            assert reply.status_code == 422 and SECRET not in reply.content
    for path in ("%2e%2e%2f%2e%2e%2fsecret.mp4", "../../../secret.mp4", "..%2Fsecret.mp4", "%00", "arm%2f0.mp4"):
        for address in (f"/api/rows/{path}/frames", f"/{path}", f"/api/rows/{path}/rationale"):
            reply = client.get(address)
            assert reply.status_code in (404, 422) and SECRET not in reply.content


def test_bodies_too_long_are_refused_whatever_length_they_claim(client: httpx2.Client) -> None:
    long = json.dumps(a_verdict(client, note="x" * 20_000)).encode()
    assert client.post("/api/verdicts", content=long).status_code == 413
    assert client.post("/api/verdicts", content=iter([long[:9000], long[9000:]])).status_code == 413
    reply = client.post("/api/verdicts", content=b"[" * 16_000)
    assert reply.status_code == 422 and "error" in reply.json()


@pytest.mark.parametrize(
    "changes",
    [
        {"level": 6, "decision": "correct"},
        {"level": True, "decision": "correct"},
        {"level": None, "decision": "correct"},
        {"decision": "delete"},
        {"annotator": ""},
        {"annotator": "a\x1b[2J"},
        {"annotator": "a" * 41},
        {"request": "short"},
        {"request": "x' OR 1=1 --------"},
        {"note": "x" * 2_001},
        {"seconds": -1},
        {"failure_cause": "dropped"},  # of a row that is rejected
        {"failure_cause": "gravity", "decision": "correct", "level": 2},
        {"failure_cause": "dropped", "decision": "correct", "level": 5},
        {"failure_frame": 2, "decision": "correct", "level": 2},
        {"failure_cause": "dropped", "failure_frame": 8, "decision": "correct", "level": 2},  # of frames 0 to 7
        {"standing": 0},
    ],
)
def test_a_verdict_that_is_none_is_refused_in_one_sentence(client: httpx2.Client, changes: dict[str, Any]) -> None:
    reply = client.post("/api/verdicts", json=a_verdict(client, **changes))
    assert reply.status_code == 422 and "\n" not in reply.json()["error"]
    assert client.get("/api/state", params={"annotator": "anna"}).json()["progress"]["mine"] == 0


def test_a_verdict_on_a_row_that_is_not_there_and_the_undo_of_another_are_refused(client: httpx2.Client) -> None:
    assert client.post("/api/verdicts", json=a_verdict(client, item="0" * 16)).status_code == 404
    given = client.post("/api/verdicts", json=a_verdict(client, annotator="ben", request="request-of-ben")).json()
    stolen = client.post("/api/undo", json={"annotator": "anna", "verdict": given["undo"]["id"]})
    assert stolen.status_code == 404
    assert client.get("/api/state", params={"annotator": "ben"}).json()["progress"]["mine"] == 1


def test_a_request_id_that_brought_another_verdict_is_refused(client: httpx2.Client) -> None:
    first = a_verdict(client, annotator="carl", request="request-of-carl")
    assert client.post("/api/verdicts", json=first).status_code == 200
    assert client.post("/api/verdicts", json=first).status_code == 200  # sent again
    for changes in ({"annotator": "dora"}, {"decision": "flag"}, {"decision": "correct", "level": 2}, {"note": "x"}):
        reply = client.post("/api/verdicts", json=first | changes)
        assert reply.status_code == 409 and "new id" in reply.json()["error"]
    assert client.get("/api/state", params={"annotator": "dora"}).json()["progress"]["mine"] == 0


def test_what_is_sent_may_be_framed_sniffed_and_cached_by_nobody(client: httpx2.Client) -> None:
    headers = client.get("/").headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert headers["referrer-policy"] == "no-referrer" and "server" not in headers


def test_a_file_of_verdicts_that_came_with_the_data_is_no_way_out(tmp_path: Path) -> None:
    data = judged_data(tmp_path / "data", 1)
    (tmp_path / "mine.sqlite").write_bytes(b"")
    os.symlink(tmp_path / "mine.sqlite", data / "verdicts.sqlite")
    with pytest.raises(DataError, match="leads out"):
        open_verification(list_rows(str(data)), None, 0.2, 0)
    (data / "verdicts.sqlite").unlink()
    (data / "verdicts.sqlite").write_bytes(b"no database at all " * 500)
    with pytest.raises(RunError, match="cannot be used as a file of verdicts"):
        open_verification(list_rows(str(data)), None, 0.2, 0)


def test_rows_of_a_strange_file_of_verdicts_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = judged_data(tmp_path / "data", 1)
    VerdictStore(data / "verdicts.sqlite").close()
    with closing(sqlite3.connect(data / "verdicts.sqlite")) as file, file:
        columns = "(request, item, annotator, decision, level, note, rationale_seen, seconds, made_at)"
        for number, values in enumerate((("x", "own", 3), (list_rows(str(data)).rows[0].key, "accept", 99))):
            item, decision, level = values
            row = (f"r{number}", item, "\x1b[2Jeve", decision, level, "", 0, 0.0, "")
            file.execute(f"INSERT INTO verdicts {columns} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert main(["data", "verify", str(data), "--export", str(tmp_path / "out")]) == 4
    assert "no row of" in capsys.readouterr().err
