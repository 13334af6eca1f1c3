"use strict";
const all = (query, root = document) => [...root.querySelectorAll(query)];

// Theme: the reader's choice, else the system's.
const root = document.documentElement;
const remembered = (() => { try { return localStorage.getItem("rewardlab-theme"); } catch { return null; } })();
root.dataset.theme = remembered || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").onclick = () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("rewardlab-theme", root.dataset.theme); } catch { /* a page from disk may not remember */ }
};

// Tabs: click, or arrow keys; panels of the same group are shown and hidden together.
const choose = (tab) => {
  const group = tab.closest(".tabs");
  for (const other of all("[role=tab]", group)) {
    other.setAttribute("aria-selected", other === tab);
    other.tabIndex = other === tab ? 0 : -1;
  }
  for (const panel of all(`[data-group="${group.dataset.tabs}"]`)) panel.hidden = panel.dataset.panel !== tab.dataset.show;
};
for (const tab of all("[role=tab]")) {
  tab.onclick = () => choose(tab);
  tab.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tabs = all("[role=tab]", tab.closest(".tabs"));
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    choose(next);
    next.focus();
  };
}

// Tables sort by the value of a column; numbers by size, words by alphabet, missing values last.
for (const button of all("th button")) button.onclick = () => {
  const head = button.closest("th"), body = head.closest("table").tBodies[0], place = head.cellIndex;
  const up = head.getAttribute("aria-sort") === "descending";
  for (const other of all("th", head.parentElement)) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
  const rows = all("tr", body).map((row) => [key(row), row]);
  const order = ([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const difference = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
    return up ? difference : -difference;
  };
  body.append(...rows.sort(order).map(([, row]) => row));
};

// The filter of the perturbations; `/` goes there.
const filter = document.getElementById("filter"), category = document.getElementById("category");
const apply = () => {
  for (const row of all("#perturbations tbody tr")) {
    const words = row.textContent.toLowerCase().includes(filter.value.toLowerCase());
    row.hidden = !words || (category.value && row.dataset.category !== category.value);
  }
};
if (filter) {
  filter.oninput = apply;
  category.onchange = apply;
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); filter.focus(); }
  });
}

// The answers: any word, and the outcome.
const saidFilter = document.getElementById("said-filter"), verdict = document.getElementById("said-verdict");
const showSaid = () => {
  const trials = all("#viewer .trial");
  for (const trial of trials) {
    const words = trial.textContent.toLowerCase().includes(saidFilter.value.toLowerCase());
    trial.hidden = !words || (verdict.value && trial.dataset.verdict !== verdict.value);
  }
  document.getElementById("said-count").textContent = `${trials.filter((trial) => !trial.hidden).length} of ${trials.length}`;
};
if (saidFilter) { saidFilter.oninput = showSaid; verdict.onchange = showSaid; showSaid(); }

// Clips: both play, stop and are moved together, by controls below them.
for (const card of all("article")) {
  const clips = all("video", card), button = card.querySelector(".play"), seek = card.querySelector(".seek");
  for (const clip of clips) clip.poster = clip.parentElement.querySelector(".still").src;
  button.onclick = () => {
    const paused = clips[0].paused;
    for (const clip of clips) if (paused) clip.play(); else clip.pause();
    button.textContent = paused ? "pause" : "play both";
  };
  clips[0].ontimeupdate = () => { seek.value = clips[0].currentTime / (clips[0].duration || 1); };
  seek.oninput = () => { for (const clip of clips) if (clip.duration) clip.currentTime = seek.value * clip.duration; };
}

// Long parts are closed on a narrow screen; a link into a closed part opens it.
if (matchMedia("(max-width: 560px)").matches) for (const detail of all("details.long")) detail.open = false;
const openTarget = () => {
  for (let part = document.getElementById(decodeURIComponent(location.hash.slice(1))); part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
  }
};
addEventListener("hashchange", openTarget);
openTarget();

// What can be scrolled sideways says so, until its end is reached.
const sideways = (box) => box.classList.toggle("beyond", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
const sizes = new ResizeObserver((entries) => { for (const { target } of entries) sideways(target); });
for (const box of all(".scroll, nav div")) {
  box.addEventListener("scroll", () => sideways(box), { passive: true });
  sizes.observe(box);
}

// On paper everything is open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details:not([open])");
  for (const detail of opened) detail.open = true;
});
addEventListener("afterprint", () => { for (const detail of opened) detail.open = false; });
