"use strict";
// Fetches the state of the server once a second and draws it; untrusted text is only ever set as text.
const byId = (name) => document.getElementById(name);
const SVG = "http://www.w3.org/2000/svg";
const shown = new Map(); // session id -> its elements
let token = "";

function make(kind, text, style) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function draw(kind, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

async function get(path) {
  return fetch(path, { headers: token ? { authorization: "Bearer " + token } : {} });
}

function curve(session) {
  const box = draw("svg", { viewBox: "0 0 400 180", role: "img" });
  const points = session.curve.filter((point) => point.progress !== null);
  const last = points.length ? points[points.length - 1].progress : null;
  box.append(draw("title", {}, last === null ? "no progress yet" : "progress so far, now " + percent(last)));
  box.append(draw("path", { class: "axis", d: "M40 10V150H390" }));
  box.append(draw("text", { x: 4, y: 18 }, "100%"), draw("text", { x: 4, y: 150 }, "0%"));
  box.append(draw("text", { x: 250, y: 172 }, "frames: " + session.frames));
  const most = Math.max(1, session.frames);
  const at = (point) => (40 + (350 * point.frames) / most).toFixed(1) + "," + (150 - 140 * Math.min(1, Math.max(0, point.progress))).toFixed(1);
  box.append(draw("polyline", { class: "progress", points: points.map(at).join(" ") }));
  return box;
}

function percent(value) {
  return Math.round(100 * value) + "%";
}

function facts(session) {
  const list = make("dl");
  const row = (name, value, style) => list.append(make("dt", name), make("dd", value, style));
  const point = session.curve[session.curve.length - 1];
  if (!point) {
    row("answer", "not scored yet");
    return list;
  }
  if (point.failure) row("no answer", point.failure, "bad");
  else row("level", String(point.level) + " of 5");
  const info = point.info || {};
  const guard = info.guard || {};
  if (guard.decision) row("guard", guard.decision, guard.decision === "pass" ? "good" : "bad");
  const success = point.probabilities ? point.probabilities[4] : guard.success_probability;
  if (success !== undefined && success !== null) row("success", percent(success));
  if (point.familiarity) row("familiarity", point.familiarity, info.unfamiliar ? "bad" : "good");
  if (info.prediction_set) {
    const share = info.set_coverage === undefined ? "" : " in " + percent(info.set_coverage) + " of clips like its training data";
    row("prediction set", info.prediction_set.join(", ") + " (holds the true level" + share + ")");
  }
  if (info.novelty !== undefined) row("novelty", Number(info.novelty).toFixed(2) + " (higher is less certain)");
  if (info.disagreement !== undefined) row("disagreement", String(info.disagreement));
  if (guard.shift) row("shift", Object.entries(guard.shift).map(([name, value]) => name + " " + value).join(", "));
  return list;
}

async function picture(session, image) {
  if (!session.frames) return;
  const reply = await get("/v1/sessions/" + encodeURIComponent(session.id) + "/frame");
  if (!reply.ok) return;
  const address = URL.createObjectURL(await reply.blob());
  if (image.src) URL.revokeObjectURL(image.src);
  image.src = address;
}

async function show(session) {
  let parts = shown.get(session.id);
  if (!parts) {
    const box = make("section");
    const image = make("img");
    image.alt = "last frame of the session";
    box.append(make("h2", session.instruction), image, make("div"), make("dl"));
    byId("sessions").append(box);
    parts = { box, image };
    shown.set(session.id, parts);
  }
  parts.box.children[2].replaceChildren(curve(session));
  parts.box.children[3].replaceWith(facts(session));
  await picture(session, parts.image);
}

async function update() {
  const reply = await get("/v1/live");
  byId("access").hidden = reply.status !== 401;
  if (!reply.ok) {
    byId("model").textContent = reply.status === 401 ? "this server needs a token" : "the server answered " + reply.status;
    return;
  }
  const state = await reply.json();
  byId("model").textContent = state.model + (state.caveat ? ": " + state.caveat : "");
  byId("load").textContent = state.pending + " of " + state.capacity + " clips pending, sessions: " + state.sessions.length;
  const open = new Set(state.sessions.map((session) => session.id));
  for (const [id, parts] of shown) if (!open.has(id)) { parts.box.remove(); shown.delete(id); }
  document.querySelector(".empty").hidden = state.sessions.length > 0;
  for (const session of state.sessions) await show(session);
}

async function loop() {
  try {
    await update();
  } catch (error) {
    byId("model").textContent = "the server does not answer";
  }
  setTimeout(loop, 1000);
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
});
loop();
