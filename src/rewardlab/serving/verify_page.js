"use strict";
// One row after the other: its clip plays, a verdict is sent, and only what the server has on disk counts.
// Text from outside is only ever set as text.
const byId = (name) => document.getElementById(name);
const token = new URLSearchParams(location.hash.slice(1)).get("token") || "";
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const HOLD = 0.8; // seconds that the last frame stays before the clip begins again
const RETRY = 1000; // milliseconds between two tries to send what was not acknowledged
const clips = new Map(); // key of a row -> promise of its clip; the next ones are loaded early

let annotator = sessionStorage.getItem("annotator") || "";
let state = null; // the last state from the server
let row = null; // the one on the screen
let clip = null;
let place = 0; // index of the frame on the screen
let playing = false;
let began = 0; // when the frame at second 0 was on the screen, in milliseconds
let shownAt = 0;
let reasonsSeen = false;
let sending = false;
let marked = null; // number of the frame at which the rollout failed

class Rejected extends Error {}
class WrongToken extends Error {}
const NEW_TOKEN = "The server was restarted with a new token. Open the address that it printed; verdicts that are not saved yet are kept and sent from there.";

async function send(path, body) {
  const headers = { authorization: "Bearer " + token };
  if (body) headers["content-type"] = "application/json";
  const reply = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (reply.ok) return reply;
  if (reply.status === 401) throw new WrongToken(NEW_TOKEN);
  const answer = await reply.json().catch(() => ({ error: "the server answered " + reply.status }));
  if (reply.status >= 500) throw new Error(answer.error);
  throw new Rejected(answer.error);
}

const seconds = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const number = (value) => (value === null ? "–" : value.toFixed(2));
const plural = (count, word) => count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

// ---- the clip

async function loadClip(key) {
  const body = await (await send("/api/rows/" + encodeURIComponent(key) + "/frames")).arrayBuffer();
  const size = new DataView(body).getUint32(0);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, size)));
  let start = 4 + size;
  header.images = header.bytes.map((length) => new Blob([body.slice(start, (start += length))], { type: "image/jpeg" }));
  return header;
}

function clipOf(key) {
  if (!clips.has(key)) clips.set(key, loadClip(key));
  return clips.get(key);
}

async function paint(canvas, image, current) {
  const bitmap = await createImageBitmap(image);
  if (!current()) return;
  if (canvas.width !== bitmap.width) canvas.width = bitmap.width;
  if (canvas.height !== bitmap.height) canvas.height = bitmap.height;
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
}

function blank(canvas) {
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
}

function show(index) {
  if (!clip) return;
  place = Math.max(0, Math.min(index, clip.images.length - 1));
  const mine = clip, at = place;
  paint(byId("screen"), clip.images[place], () => clip === mine && place === at);
  byId("seek").value = String(place);
  byId("frame").textContent = "frame " + (clip.frames[place] + 1) + " of " + clip.count;
  byId("moment").textContent = "· " + clip.seconds[place].toFixed(2) + " s" + (clip.images.length < clip.count ? " · " + clip.images.length + " frames are shown" : "");
}

const speed = () => Number(byId("speed").value);

function tick(now) {
  if (!playing || !clip) return;
  const length = clip.seconds[clip.seconds.length - 1];
  const second = ((now - began) / 1000) * speed();
  if (second > length + HOLD * Math.max(1, speed())) began = now;
  let next = clip.seconds.findIndex((moment) => moment > second) - 1;
  if (next === -2) next = clip.images.length - 1;
  next = Math.max(0, next);
  if (next !== place) show(next);
  requestAnimationFrame(tick);
}

function play(on) {
  playing = on && clip !== null;
  byId("play").textContent = playing ? "❚❚" : "►";
  byId("play").setAttribute("aria-label", playing ? "pause" : "play");
  if (!playing) return;
  const from = place === clip.images.length - 1 ? 0 : clip.seconds[place];
  began = performance.now() - (from / speed()) * 1000;
  requestAnimationFrame(tick);
}

function step(by) {
  play(false);
  show(place + by);
}

function changeSpeed(by) {
  const next = SPEEDS[Math.max(0, Math.min(SPEEDS.indexOf(speed()) + by, SPEEDS.length - 1))];
  byId("speed").value = String(next);
  play(playing);
}

async function enlarge() {
  if (!row || !clip) return;
  play(false);
  const picture = await (await send("/api/rows/" + encodeURIComponent(row.key) + "/last")).blob();
  URL.revokeObjectURL(byId("big-image").src);
  byId("big-image").src = URL.createObjectURL(picture);
  open(byId("big"));
}

// ---- the row

function showRow(next) {
  row = next;
  clip = null;
  play(false);
  shownAt = performance.now();
  reasonsSeen = false;
  byId("work").hidden = !row;
  byId("finished").hidden = Boolean(row);
  if (!row) return showFinished();
  byId("instruction").textContent = row.instruction;
  byId("proposal").textContent = row.level === null ? "No level is proposed; give one" : "Proposed level: " + row.level + " of 5";
  for (const button of document.querySelectorAll("#rubric button")) {
    const proposed = Number(button.dataset.level) === row.level;
    button.classList.toggle("proposed", proposed);
    button.querySelector("i").textContent = proposed ? "proposed" : "";
  }
  byId("accept").disabled = row.level === null;
  byId("cause").value = row.failure_cause;
  mark(row.failure_frame);
  byId("facts").textContent = [row.source, row.stage && row.stage !== "source" && "made by " + row.stage, row.file_name].filter(Boolean).join(" · ");
  byId("note").value = "";
  byId("note-box").open = byId("reasons").open = false;
  byId("reasons").hidden = !row.explained;
  byId("reasons-text").replaceChildren();
  for (const name of ["screen", "still"]) blank(byId(name)); // no picture of another row is ever judged
  byId("frame").textContent = "loading the clip";
  byId("moment").textContent = "";
  showClip(row);
}

function mark(frame) {
  marked = frame;
  byId("marked").textContent = marked === null ? "" : "failed at frame " + (marked + 1);
}

function markHere() {
  if (!clip) return;
  play(false);
  mark(marked === clip.frames[place] ? null : clip.frames[place]);
}

async function showClip(mine) {
  let found = null;
  try {
    found = await clipOf(mine.key);
  } catch (error) {
    clips.delete(mine.key);
    if (row === mine) byId("frame").textContent = "the clip cannot be shown: " + error.message;
    return;
  }
  if (row !== mine) return;
  clip = found;
  byId("seek").max = String(clip.images.length - 1);
  byId("screen").setAttribute("aria-label", "the clip: " + mine.instruction);
  const last = clip.images[clip.images.length - 1];
  paint(byId("still"), last, () => clip === found);
  show(0);
  play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
}

function showFinished() {
  const { mine, rows, done, disputed } = state.progress;
  const others = disputed ? ", " + plural(disputed, "row") + " wait for another person" : "";
  byId("finished-text").textContent = "You judged " + plural(mine, "row") + ". " + plural(done, "row") + " of " + rows.toLocaleString("en") + " need no further verdict" + others + ".";
  byId("finished-undo").hidden = !state.undo;
}

function update(next) {
  state = next;
  const { mine, left, disputed } = state.progress;
  byId("data").textContent = state.data;
  document.title = "rewardlab data verify · " + state.data;
  byId("progress").hidden = byId("agreement-open").hidden = false;
  byId("bar").max = Math.max(1, mine + left);
  byId("bar").value = mine;
  byId("counts").textContent = annotator + ": " + mine.toLocaleString("en") + " judged, " + left.toLocaleString("en") + " left" + (disputed ? ", " + disputed + " disputed" : "");
  byId("undo").disabled = !state.undo;
  const ahead = new Set(state.rows.map((each) => each.key));
  for (const key of clips.keys()) if (!ahead.has(key)) clips.delete(key);
  if (!row || !state.rows.length || row.key !== state.rows[0].key) showRow(state.rows[0] || null);
  for (const each of state.rows.slice(1)) clipOf(each.key).catch(() => clips.delete(each.key));
  if (state.problems) byId("facts").textContent += " · " + plural(state.problems, "line") + " of the metadata cannot be read";
}

// ---- verdicts: kept in the browser until the server has acknowledged them

const pendingName = () => "pending verdict of " + annotator;

function requestId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function judge(decision, level) {
  if (!row || sending || (decision === "accept" && row.level === null)) return;
  const verdict = { request: requestId(), annotator, item: row.key, decision, level: level || null };
  if (byId("cause").value && (decision === "accept" ? row.level : verdict.level) < 5 && (decision === "accept" || decision === "correct")) {
    verdict.failure_cause = byId("cause").value;
    verdict.failure_frame = marked;
  }
  verdict.note = byId("note").value.trim();
  verdict.rationale_seen = reasonsSeen;
  verdict.seconds = Math.round(performance.now() - shownAt) / 1000;
  localStorage.setItem(pendingName(), JSON.stringify(verdict));
  await sendPending();
}

async function sendPending() {
  const text = localStorage.getItem(pendingName());
  if (!text || sending) return;
  sending = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    await deliver(JSON.parse(text));
  } finally {
    sending = false;
    document.body.removeAttribute("aria-busy");
  }
}

async function deliver(verdict) {
  for (;;) {
    try {
      const next = await (await send("/api/verdicts", verdict)).json();
      localStorage.removeItem(pendingName());
      trouble("");
      say(verdict);
      update(next);
      refreshAgreement();
      return;
    } catch (error) {
      if (error instanceof WrongToken) return trouble(error.message);
      if (error instanceof Rejected) {
        localStorage.removeItem(pendingName());
        trouble("The verdict was rejected: " + error.message);
        return;
      }
      trouble("The server does not answer. Your verdict is not saved yet; it is sent again until it is.");
      await seconds(RETRY);
    }
  }
}

function say(verdict) {
  const words = { accept: "accepted", reject: "rejected", flag: "flagged", correct: "level " + verdict.level };
  const done = document.createElement("span");
  done.className = "good";
  const why = verdict.failure_cause ? ", " + verdict.failure_cause.replaceAll("_", " ") : "";
  done.textContent = "Saved: " + words[verdict.decision] + why;
  byId("result").replaceChildren(done, ". U undoes it.");
}

async function undo() {
  if (sending || !state || !state.undo) return;
  sending = true;
  try {
    const next = await (await send("/api/undo", { annotator, verdict: state.undo.id })).json();
    row = null;
    update(next);
    byId("result").textContent = "Undone. Judge it again.";
    refreshAgreement();
  } catch (error) {
    trouble("The verdict could not be undone: " + error.message);
  } finally {
    sending = false;
  }
}

// ---- reasons, agreement, help

async function showReasons() {
  if (!row || !row.explained || reasonsSeen) return;
  reasonsSeen = true;
  const mine = row;
  const verdicts = await (await send("/api/rows/" + encodeURIComponent(row.key) + "/rationale")).json();
  if (row !== mine) return;
  byId("reasons-text").replaceChildren(...verdicts.filter((each) => each.rationale).map(reason));
}

function reason(verdict) {
  const made = document.createElement("p");
  const who = document.createElement("small");
  who.textContent = (verdict.by || "unnamed") + (verdict.holds ? ": the label is correct. " : ": the label is wrong. ");
  made.append(who, verdict.rationale);
  return made;
}

async function showAgreement() {
  const found = await (await send("/api/agreement")).json();
  byId("alpha").textContent = number(found.alpha);
  byId("alpha-outcomes").textContent = number(found.alpha);
  byId("alpha-levels").textContent = number(found.alpha_of_levels);
  byId("agreement-text").textContent = found.rows ? "Over " + plural(found.rows, "row") + " that two or more people judged." : "No row has been judged by two people yet.";
  byId("pairs").hidden = !found.pairs.length;
  byId("pairs").querySelector("tbody").replaceChildren(...found.pairs.map(pairRow));
}

const refreshAgreement = () => showAgreement().catch(() => {}); // what is shown stays until the server answers

function pairRow(pair) {
  const made = document.createElement("tr");
  const alike = pair.alike === null ? "–" : Math.round(100 * pair.alike) + "%";
  for (const text of [pair.first + " and " + pair.second, String(pair.rows), alike, number(pair.kappa), number(pair.weighted_kappa)]) made.insertCell().textContent = text;
  return made;
}

async function download() {
  const rows = await (await send("/api/verified.jsonl")).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(rows);
  link.download = "verified.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}

const open = (dialog) => dialog.open || dialog.showModal();

function toggle(details) {
  details.open = !details.open;
}

function writeNote() {
  byId("note-box").open = true;
  byId("note").focus();
}

// ---- keys and clicks

const KEYS = {
  a: () => judge("accept"),
  r: () => judge("reject"),
  f: () => judge("flag"),
  u: undo,
  " ": () => play(!playing),
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  ArrowUp: () => changeSpeed(1),
  ArrowDown: () => changeSpeed(-1),
  Home: () => step(-Infinity),
  End: () => step(Infinity),
  c: () => byId("cause").focus(),
  m: markHere,
  e: enlarge,
  n: writeNote,
  v: () => row && row.explained && toggle(byId("reasons")),
  g: () => byId("agreement-open").click(),
  "?": () => open(byId("help")),
};
for (const level of [1, 2, 3, 4, 5]) KEYS[level] = () => judge("correct", level);

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !byId("shortcuts").checked) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) return event.key.toLowerCase() === dialog.dataset.key && dialog.close();
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  const target = event.target;
  if (event.key === "Escape" && target === byId("note")) return target.blur();
  if ((event.key === "Escape" || event.key === "Enter") && target === byId("cause")) return target.blur();
  if (target.matches("input:not([type=range]), textarea, select")) return;
  if (event.key === " " && target.matches("button, summary")) return; // a focused button is pressed by the space bar
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || !annotator) return;
  event.preventDefault();
  act();
}

function clicked(name, act) {
  byId(name).addEventListener("click", (event) => {
    if (event.detail) event.currentTarget.blur(); // after a click with the mouse the space bar plays, and judges nothing
    act();
  });
}

async function start() {
  byId("who").hidden = Boolean(annotator);
  if (!annotator) {
    byId("name").value = localStorage.getItem("annotator") || "";
    return byId("name").focus();
  }
  for (;;) {
    try {
      update(await (await send("/api/state?annotator=" + encodeURIComponent(annotator))).json());
      trouble("");
      break;
    } catch (error) {
      if (error instanceof WrongToken) return trouble(error.message);
      if (error instanceof Rejected) return trouble("The server rejected the request: " + error.message);
      trouble("The server does not answer; trying again.");
      await seconds(RETRY);
    }
  }
  await sendPending();
  await refreshAgreement();
}

byId("who").addEventListener("submit", (event) => {
  event.preventDefault();
  annotator = byId("name").value.trim();
  if (!annotator) return;
  sessionStorage.setItem("annotator", annotator);
  localStorage.setItem("annotator", annotator);
  start();
});
clicked("accept", () => judge("accept"));
clicked("reject", () => judge("reject"));
clicked("flag", () => judge("flag"));
clicked("undo", undo);
clicked("finished-undo", undo);
clicked("back", () => step(-1));
clicked("forward", () => step(1));
clicked("play", () => play(!playing));
clicked("enlarge", enlarge);
clicked("mark", markHere);
clicked("help-open", () => open(byId("help")));
clicked("agreement-open", () => { refreshAgreement(); open(byId("agreement")); });
for (const button of document.querySelectorAll("#rubric button")) {
  button.addEventListener("click", (event) => {
    if (event.detail) button.blur();
    judge("correct", Number(button.dataset.level));
  });
}
for (const button of document.querySelectorAll(".download")) button.addEventListener("click", download);
byId("seek").addEventListener("input", () => { play(false); show(Number(byId("seek").value)); });
byId("speed").addEventListener("change", () => { play(playing); byId("speed").blur(); });
byId("cause").addEventListener("change", () => byId("cause").blur());
byId("reasons").addEventListener("toggle", () => byId("reasons").open && showReasons());
document.addEventListener("keydown", pressed);
setInterval(() => byId("agreement").open && refreshAgreement(), 2000);
if (token) start();
else byId("locked").hidden = false;
