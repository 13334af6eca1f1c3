"use strict";
// Sends what the forms hold, and shows the answers; what the server says is only ever set as text.
const access = document.getElementById("access");
let token = "";

function make(kind, text, style) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function inputs(form, place) {
  return [...form.querySelectorAll(`[data-in=${place}]`)];
}

function given(form, place) {
  return inputs(form, place).filter((each) => (each.type === "file" ? each.files.length : each.value));
}

function requestOf(form) {
  let path = form.dataset.path;
  for (const each of inputs(form, "path")) path = path.replace("{" + each.name + "}", encodeURIComponent(each.value));
  const query = new URLSearchParams(given(form, "query").map((each) => [each.name, each.value])).toString();
  const headers = token ? { authorization: "Bearer " + token } : {};
  let body;
  const kinds = form.dataset.types.split(" ");
  const kind = kinds[0];
  if (kind === "multipart/form-data") {
    body = new FormData();
    for (const each of given(form, "form")) body.append(each.name, each.type === "file" ? each.files[0] : each.value);
  } else if (kind) {
    body = kind === "application/json" ? inputs(form, "json")[0].value : inputs(form, "file")[0].files[0];
    headers["content-type"] = kinds.includes(body.type) ? body.type : kind;
  }
  return [path + (query ? "?" + query : ""), { method: form.dataset.method, headers, body }];
}

function keepSession(reply) {
  if (reply.session === undefined) return;
  for (const each of document.querySelectorAll("[data-in=path]")) each.value = reply.session;
}

async function shown(reply) {
  const kind = reply.headers.get("content-type") || "";
  if (kind.startsWith("image/")) {
    const image = make("img");
    image.alt = "the answer";
    image.src = URL.createObjectURL(await reply.blob());
    return image;
  }
  const text = await reply.text();
  if (!text || !kind.startsWith("application/json")) return make("pre", text || "nothing");
  const answer = JSON.parse(text);
  keepSession(answer);
  return make("pre", JSON.stringify(answer, null, 2));
}

async function send(form) {
  const output = form.querySelector("output");
  output.hidden = false;
  output.replaceChildren(make("span", "waiting"));
  try {
    const reply = await fetch(...requestOf(form));
    if (reply.status === 401) access.hidden = false;
    const answer = await shown(reply);
    output.replaceChildren(make("span", "status " + reply.status, reply.ok ? "good" : "bad"), answer);
  } catch (error) {
    output.replaceChildren(make("span", "the server does not answer", "bad"));
  }
}

function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (named && named.tagName === "DETAILS") named.open = true;
}

for (const each of document.querySelectorAll(".origin")) each.textContent = location.origin;
for (const form of document.querySelectorAll(".try")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}
access.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value;
});
addEventListener("hashchange", openNamed);
openNamed();
