"use strict";
// The page over the runs of a folder: list, side by side, curves on a clip. Every text goes in as text, never as HTML.
const rewardlab = (() => {
  const by = (id) => document.getElementById(id);
  const fixed = Boolean(by("view").dataset.static);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const PALETTE = 8, SPEED = 6; // colours; frames per second
  const LEVELS_ONLY = "a level only, no progress per frame";

  // ---- documents: JSON of the server, or in a static copy scripts that hand theirs over

  const waiting = new Map(), kept = new Map();
  const take = (name, content) => waiting.get(name)?.(content);
  const fromFile = (name) => new Promise((done, fail) => {
    const script = document.createElement("script");
    waiting.set(name, done);
    script.onerror = () => fail(new Error("this is not part of the static copy"));
    script.onload = () => script.remove();
    script.src = `data/${name}.js`;
    document.head.append(script);
  });
  async function fromServer(name) {
    const answer = await fetch(`data/${name}.json`, { cache: "no-store" });
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.error || `the server answered ${answer.status}`);
    return content;
  }
  const load = fixed ? fromFile : fromServer;
  function loadOnce(name, version = "") { // again only where the run has grown
    const found = kept.get(name);
    if (found && found.version === version) return found.content;
    const content = load(name);
    kept.set(name, { version, content });
    while (kept.size > 300) kept.delete(kept.keys().next().value);
    content.catch(() => kept.delete(name));
    return content;
  }

  // ---- elements

  function made(kind, properties = {}, ...children) {
    const element = document.createElement(kind);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element && name !== "list") element[name] = value;
      else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  function drawn(kind, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const coloured = (element, number) => { element.style.setProperty("--c", `var(--p${number % PALETTE})`); return element; };
  const options = (select, pairs, chosen) => {
    const before = chosen ?? select.value;
    if (pairs.map(String).join("\n") !== [...select.options].map((o) => [o.value, o.textContent].join(",")).join("\n"))
      select.replaceChildren(...pairs.map(([value, text]) => made("option", { value, textContent: text })));
    if (pairs.some(([value]) => value === String(before))) select.value = before;
  };
  const text = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
  const interval = (n) => (n.low === null || n.high === null ? "" : `[${text(n.low)}, ${text(n.high)}]`);
  const trouble = (sentence) => { by("trouble").hidden = !sentence; by("trouble").textContent = sentence || ""; };

  // ---- state: what is ticked and open stands behind #, so that back, reload and links work

  let listed = { runs: [], metrics: [] }, sort = { by: "created", up: false }, shownVersion = "";
  const state = () => new URLSearchParams(location.hash.slice(1));
  const ticked = () => (state().get("with") || "").split(",").filter((name) => /^[0-9a-f]{16}-\d{1,4}$/.test(name));
  function go(changes, replace = false) {
    const next = state();
    for (const [name, value] of Object.entries(changes)) if (value === "" || value === null) next.delete(name); else next.set(name, value);
    const hash = "#" + next.toString().replaceAll("%2C", ",");
    if (!replace) { location.hash = hash; return; }
    history.replaceState(null, "", hash);
    route();
  }
  const runOf = (key) => listed.runs.find((run) => run.key === key);
  const version = (run) => `${run.state} ${run.trials}`;
  function chosen() { // the ticked models that are there, with their runs
    return ticked().map((name) => {
      const [key, index] = name.split("-"), run = runOf(key);
      const model = run?.models.find((each) => each.index === Number(index));
      return model && { name, run, model };
    }).filter(Boolean);
  }
  function titles(picked) { // the run is named where a model name alone would not do
    const several = new Set(picked.map((each) => each.run.key)).size > 1;
    return picked.map((each) => (several ? `${each.model.name} (${each.run.name})` : each.model.name));
  }

  // ---- the list

  function rows() {
    const found = [];
    for (const run of listed.runs) {
      if (run.state === "unreadable") continue;
      for (const model of run.models) if (model.evaluated || by("baselines").checked) found.push({ run, model });
    }
    const words = by("words").value.toLowerCase().split(/\s+/).filter(Boolean), wanted = by("model").value, kind = by("state").value;
    const kept = found.filter(({ run, model }) => {
      const all = [run.name, run.kind, run.data, run.state, run.date, model.name, model.model].join(" ").toLowerCase();
      return words.every((word) => all.includes(word)) && (!wanted || model.model === wanted) && (!kind || run.state === kind);
    });
    const value = ({ run, model }) => ({ model: model.name, created: run.created, name: run.name, state: run.state })[sort.by] ?? model.numbers?.[sort.by]?.value ?? null;
    const order = (x, y) => {
      const [a, b] = [value(x), value(y)];
      if (a === null || b === null) return (a === null) - (b === null);
      const less = typeof a === "number" ? a - b : a.localeCompare(b);
      return sort.up ? less : -less;
    };
    return kept.sort((x, y) => order(x, y) || x.run.name.localeCompare(y.run.name) || x.model.index - y.model.index);
  }
  function numberCell(model, metric) {
    const n = model.numbers?.[metric.name], cell = made("td", { "data-heading": metric.heading, className: n ? "" : "none" });
    if (!n) { cell.textContent = model.numbers === null ? "…" : "–"; return cell; }
    const best = n.best ? made("small", { textContent: `best control ${text(n.best.value)} (${n.best.model})` }) : null;
    const value = made("span", { textContent: text(n.value) });
    cell.append(made("span", {}, value, made("small", { textContent: interval(n) }), best, n.where ? made("small", { textContent: n.where.replace("severity ", "severity\u00a0") }) : null,
      n.scored < n.asked ? made("small", { textContent: `${n.scored} of ${n.asked} scored` }) : null));
    return cell;
  }
  function stateCell(run) {
    const cell = made("td", { className: "state", "data-heading": "state" }, made("span", { className: `tag ${run.state}`, textContent: run.state }));
    if (run.state === "complete") return cell;
    cell.append(made("small", { textContent: `${run.trials.toLocaleString("en")} of ${run.planned.toLocaleString("en")} trials` }));
    if (run.state === "running") cell.append(made("progress", { max: Math.max(run.planned, 1), value: run.trials, "aria-label": `trials of ${run.name}` }));
    return cell;
  }
  function runRow({ run, model }) {
    const name = `${run.key}-${model.index}`;
    const tick = made("input", { type: "checkbox", id: `tick-${name}`, checked: ticked().includes(name), "aria-label": `select ${model.name} of ${run.name}` });
    tick.onchange = () => go({ with: (tick.checked ? [...ticked(), name] : ticked().filter((each) => each !== name)).join(",") }, true);
    const report = run.report === false || run.note ? made("b", { textContent: run.name }) : made("a", { href: `report-${run.key}.html`, textContent: run.name });
    const row = made("tr", { className: model.evaluated ? "evaluated" : "baseline" },
      made("td", {}, tick),
      made("td", { className: "called" }, made("label", { htmlFor: `tick-${name}`, textContent: model.name, title: model.model }), model.evaluated ? null : made("small", { textContent: "baseline" })),
      made("td", { className: "called" }, report, made("small", { textContent: [run.kind, run.data, `${run.episodes} clips`, run.date].join(" · ") }), run.note ? made("small", { textContent: run.note }) : null),
      stateCell(run), ...listed.metrics.map((metric) => numberCell(model, metric)));
    row.dataset.name = name;
    return row;
  }
  function drawHead() {
    const columns = [["model", "model"], ["created", "run"], ["state", "state"], ...listed.metrics.map((metric) => [metric.name, metric.heading])];
    const head = by("runs").tHead;
    if (!head.rows.length || head.rows[0].cells.length !== columns.length + 1) {
      const blank = made("td", {}, made("span", { hidden: true, textContent: "select" }));
      head.replaceChildren(made("tr", {}, blank, ...columns.map(([name, heading]) => {
        const button = made("button", { type: "button", textContent: heading });
        button.onclick = () => { sort = { by: name, up: sort.by === name ? !sort.up : sort.up }; drawList(); };
        const cell = made("th", { scope: "col" }, button);
        cell.dataset.by = name;
        return cell;
      })));
      options(by("order"), columns.flatMap(([name, heading]) => [[`${name} down`, `sort by ${heading} ↓`], [`${name} up`, `sort by ${heading} ↑`]]), "created down");
      by("legend").replaceChildren(...listed.metrics.flatMap((metric) => [made("dt", { textContent: metric.heading }), made("dd", { textContent: metric.summary })]));
    }
    for (const cell of head.rows[0].cells) {
      if (cell.dataset.by === sort.by) cell.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    }
    by("order").value = `${sort.by} ${sort.up ? "up" : "down"}`;
  }
  function drawList() {
    drawHead();
    const models = new Map(listed.runs.flatMap((run) => run.models).filter((model) => model.evaluated || by("baselines").checked).map((model) => [model.model, model.name]));
    options(by("model"), [["", "all models"], ...models]);
    const body = by("runs").tBodies[0], old = new Map([...body.rows].map((row) => [row.dataset.name, row])), focused = document.activeElement?.id;
    const next = rows().map((each) => {
      const row = runRow(each), before = old.get(row.dataset.name);
      if (before?.isEqualNode(row)) { before.querySelector("input").checked = row.querySelector("input").checked; return before; }
      return row;
    });
    if (next.length !== body.rows.length || next.some((row, place) => body.rows[place] !== row)) {
      body.replaceChildren(...next);
      if (focused?.startsWith("tick-")) by(focused)?.focus({ preventScroll: true });
    }
    const bad = listed.runs.filter((run) => run.state === "unreadable" && (!by("state").value || by("state").value === "unreadable"));
    by("unreadable").hidden = !bad.length;
    by("unreadable").replaceChildren(...bad.map((run) => made("li", {}, made("b", { textContent: run.name }), " ", made("span", { className: "tag unreadable", textContent: "unreadable" }), " ", run.problem)));
  }
  function drawTicked() {
    const count = chosen().length, open = state().get("view");
    by("ticked").hidden = !count;
    by("count").textContent = `${count} selected`;
    by("compare").disabled = count < 2;
    by("compare").title = count < 2 ? "select two or more" : "";
    by("compare").hidden = open === "compare";
    by("curves").hidden = open === "clip";
  }

  // ---- side by side

  async function drawCompare() {
    const picked = chosen(), names = titles(picked);
    if (picked.length < 2) { by("sides").tHead.replaceChildren(); by("sides").tBodies[0].replaceChildren(); by("tests").textContent = "Select two or more models in the list."; return; }
    const details = await Promise.all(picked.map(({ run }) => loadOnce(`run-${run.key}`, version(run))));
    by("verdicts").replaceChildren(...picked.flatMap(({ model }, place) => (model.verdict ? [made("dt", { textContent: names[place] }), made("dd", { textContent: model.verdict })] : [])));
    const metrics = details[0].metrics, metric = metrics.find((each) => each.name === state().get("metric")) || metrics[0];
    by("metrics").replaceChildren(...metrics.map((each) => {
      const button = made("button", { type: "button", textContent: each.heading, "aria-pressed": String(each === metric), title: each.summary, id: `metric-${each.name}` });
      button.onclick = () => { go({ metric: each.name }, true); by(button.id).focus(); };
      return button;
    }));
    const numbers = picked.map(({ model }, place) => new Map(details[place].numbers.filter((n) => n[0] === model.index && n[3] === metric.name)
      .filter((n) => n[1] === "clean" || n[2] > 0).map((n) => [`${n[1]} ${n[2]}`, { value: n[4], low: n[5], high: n[6] }])));
    const order = ["clean", "visual", "semantic", "temporal", "domain", "pair"];
    const groups = [...new Set(numbers.flatMap((each) => [...each.keys()]))].map((name) => name.split(" "))
      .sort(([a, i], [b, j]) => order.indexOf(a) - order.indexOf(b) || i - j);
    by("sides").tHead.replaceChildren(made("tr", {}, made("th", { scope: "col", textContent: "category" }), ...picked.map((each, place) =>
      made("th", { scope: "col" }, coloured(made("i"), place), names[place], made("small", { textContent: ` ${each.run.data}` })))));
    by("sides").tBodies[0].replaceChildren(...groups.map(([group, severity]) => {
      const first = numbers[0].get(`${group} ${severity}`);
      return made("tr", {}, made("th", { scope: "row" }, group === "clean" ? "clean" : `${group}, `, group === "clean" ? null : made("span", { textContent: `severity ${severity}` })), ...numbers.map((each, place) => {
        const n = each.get(`${group} ${severity}`);
        if (!n || n.value === null) return made("td", { textContent: "–" });
        const gap = place && first && first.value !== null ? n.value - first.value : null;
        return made("td", {}, text(n.value), made("small", { textContent: [interval(n), gap === null ? "" : `(Δ ${gap < 0 ? "−" : "+"}${text(Math.abs(gap))})`].join(" ") }));
      }));
    }));
    const sentence = groups.length ? "" : `No selected run has ${metric.title} yet.`;
    if (sentence) by("sides").tBodies[0].replaceChildren(made("tr", {}, made("td", { textContent: sentence, colSpan: picked.length + 1 })));
    const running = picked.some(({ run }) => run.state === "running");
    const key = picked.map(({ name, run }) => `${name} ${running ? "" : version(run)}`).join();
    if (by("tests").dataset.key === key) return;
    by("tests").dataset.key = key;
    const cards = await Promise.all(picked.slice(1).map(async (other, place) => {
      const card = made("article", {}, made("h3", { textContent: `${names[0]} and ${names[place + 1]}` }));
      try {
        const found = await loadOnce(`tests-${picked[0].name}-${other.name}`, key);
        if (found.problem) throw new Error(found.problem);
        card.append(made("p", {}, made("b", { textContent: found.verdict })));
        if (found.claims.length) card.append(made("ul", { className: "findings" }, ...found.claims.map((each) => made("li", { textContent: each }))));
        card.append(made("p", { className: "soft", textContent: [`A is ${found.a}, B is ${found.b}. Tests on the trials that both scored, corrected by Holm within this pair`, ...found.notes].join("; ") + "." }));
        const table = made("table", {}, made("thead", {}, made("tr", {}, ...found.head.map((heading) => made("th", { scope: "col", textContent: heading })))),
          made("tbody", {}, ...found.rows.map((row) => made("tr", {}, ...row.map((cell) => made("td", { textContent: cell }))))));
        card.append(made("details", {}, made("summary", { textContent: `all ${found.rows.length} tests` }), made("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": `tests of ${names[0]} and ${names[place + 1]}` }, table)));
      } catch (error) { card.append(made("p", { textContent: `No test: ${error.message}` })); }
      return card;
    }));
    if (by("tests").dataset.key === key) by("tests").replaceChildren(...cards);
  }

  // ---- curves on a clip

  let clip = null, frame = 0, timer = 0, drawnClip = "";
  const BOX = { left: 40, right: 12, top: 12, bottom: 30, width: 640, height: 260 }; // of the chart, in pixels
  const stop = () => { clearInterval(timer); timer = 0; by("play").textContent = "play"; };
  function play() {
    if (timer) return stop();
    if (!clip || clip.count < 2) return;
    if (frame >= clip.count - 1) show(0);
    by("play").textContent = "pause";
    timer = setInterval(() => { if (frame >= clip.count - 1) stop(); else show(frame + 1); }, 1000 / SPEED);
  }
  function show(place) {
    frame = Math.max(0, Math.min(place, clip.count - 1));
    by("seek").value = frame;
    const seconds = clip.times ? ` · ${clip.times[frame].toFixed(2)} s` : "";
    by("at").textContent = clip.count ? `frame ${frame + 1} of ${clip.count}${seconds}` : "";
    by("seek").setAttribute("aria-valuetext", by("at").textContent);
    if (clip.frames) {
      const nearest = clip.places.reduce((best, at, number) => (Math.abs(at - frame) < Math.abs(clip.places[best] - frame) ? number : best), 0);
      by("frame").src = clip.frames[nearest];
      by("frame").alt = `frame ${frame + 1} of the clip`;
    }
    const cursor = by("chart").querySelector(".cursor");
    if (cursor) for (const end of ["x1", "x2"]) cursor.setAttribute(end, clip.x(frame));
    for (const cell of by("answers").querySelectorAll("[data-line]")) {
      const line = clip.lines[Number(cell.dataset.line)];
      cell.textContent = line.progress ? text(line.progress[frame]) : "–";
    }
  }
  function seekAt(event) {
    if (!clip || !clip.count) return;
    const box = by("chart").getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * BOX.width;
    let best = 0;
    for (let place = 1; place < clip.count; place++) if (Math.abs(clip.x(place) - at) < Math.abs(clip.x(best) - at)) best = place;
    stop();
    show(best);
  }
  const stretched = (numbers, count) => Array.from({ length: count }, (_, place) => { // over the same time
    const at = count > 1 ? (place * (numbers.length - 1)) / (count - 1) : 0, low = Math.floor(at), next = Math.min(low + 1, numbers.length - 1);
    return numbers[low] + (at - low) * (numbers[next] - numbers[low]);
  });
  function lineOf(each, name, colour, trial) {
    const known = trial && trial.status === "scored";
    return { name, colour, control: !each.model.evaluated, trial, level: known ? trial.level : null, progress: known ? trial.progress : null };
  }
  function drawChart() {
    BOX.width = Math.max(280, by("chart").clientWidth);
    by("chart").setAttribute("viewBox", `0 0 ${BOX.width} ${BOX.height}`);
    const { lines, truth, times, count } = clip, values = [...lines.flatMap((line) => line.progress || []), ...(truth || [])];
    const low = Math.min(0, ...values), high = Math.max(1, ...values), end = times ? times[count - 1] || 1 : Math.max(count - 1, 1);
    const x = (place) => BOX.left + ((BOX.width - BOX.left - BOX.right) * (times ? times[place] : place)) / end;
    const y = (value) => BOX.top + (BOX.height - BOX.top - BOX.bottom) * (1 - (value - low) / (high - low));
    const path = (numbers) => numbers.map((value, place) => `${place ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const parts = [];
    for (let step = 0; step <= 4; step++) {
      const value = low + ((high - low) * step) / 4;
      parts.push(drawn("line", { class: "grid", x1: BOX.left, x2: BOX.width - BOX.right, y1: y(value), y2: y(value) }));
      parts.push(drawn("text", { class: "tick", x: BOX.left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
    }
    parts.push(drawn("text", { class: "tick", x: BOX.left, y: BOX.height - 8 }, times ? "0 s" : "first frame"));
    parts.push(drawn("text", { class: "tick", x: BOX.width - BOX.right, y: BOX.height - 8, "text-anchor": "end" }, times ? `${end.toFixed(1)} s` : `frame ${count}`));
    parts.push(drawn("text", { class: "tick", x: (BOX.left + BOX.width) / 2, y: BOX.height - 8, "text-anchor": "middle" }, "progress over time"));
    if (truth) parts.push(drawn("path", { class: "truth", d: path(truth) }));
    for (const line of lines) {
      const group = coloured(drawn("g", { class: line.control ? "curve control" : "curve" }), line.colour);
      if (line.progress) group.append(drawn("path", { class: "line", d: path(line.progress) }, drawn("title", {}, line.name)));
      else if (line.level !== null) group.append(drawn("line", { class: "level", x1: BOX.width - BOX.right - 46, x2: BOX.width - BOX.right, y1: y((line.level - 1) / 4), y2: y((line.level - 1) / 4) }, drawn("title", {}, `${line.name}: level ${text(line.level, 1)}, ${LEVELS_ONLY}`)));
      parts.push(group);
    }
    parts.push(drawn("line", { class: "cursor", y1: BOX.top, y2: BOX.height - BOX.bottom, x1: 0, x2: 0 }));
    clip.x = x;
    by("chart").replaceChildren(...parts);
    const key = (line) => coloured(made("li", { className: [line.control ? "control" : "", line.progress ? "" : "level"].join(" ").trim() }, made("i"), line.progress ? line.name : `${line.name}: ${line.level === null ? "no score" : LEVELS_ONLY}`), line.colour);
    by("keys").replaceChildren(...lines.map(key), ...(truth ? [made("li", { className: "truth" }, made("i"), "true progress")] : []));
  }
  function answerRow(line, number) {
    const { trial } = line, name = made("td", {}, coloured(made("i"), line.colour), line.name);
    if (!trial) return made("tr", {}, name, made("td", { textContent: "–" }), made("td", { textContent: "–" }), made("td", { textContent: "–" }), made("td", { className: "words", textContent: "not scored yet, or not part of this run" }));
    const bars = trial.probabilities ? made("span", { className: "bars", role: "img", "aria-label": trial.probabilities.map((p, level) => `level ${level + 1}: ${text(p)}`).join(", ") }) : null;
    if (bars) for (const [level, p] of trial.probabilities.entries()) {
      const bar = coloured(made("span", { title: `level ${level + 1}: ${text(p)}` }), line.colour);
      bar.style.height = `${Math.max(1, Math.round(28 * p))}px`;
      bars.append(bar);
    }
    const words = trial.status !== "scored" ? `${trial.status}: ${trial.reason}` : !line.progress ? `${LEVELS_ONLY}: the flat mark at the right end of the chart` : line.seen ? `it saw ${line.seen} frames; the curve is drawn over the same time` : "";
    const here = made("span");
    here.dataset.line = number;
    return made("tr", {}, name, made("td", { "data-heading": "level" }, made("span", {}, text(line.level, 1), made("small", { textContent: trial.truth_level === null ? "true level unknown" : `true level ${trial.truth_level}` }))), made("td", { "data-heading": "probabilities of 1 to 5" }, bars || "–"), made("td", { "data-heading": "progress here" }, here), made("td", { className: "words", textContent: words }));
  }
  async function drawClip() {
    const picked = chosen(), names = titles(picked);
    if (!picked.length) { by("no-frame").hidden = false; by("no-frame").textContent = "Select one or more models in the list."; return; }
    const details = await Promise.all(picked.map(({ run }) => loadOnce(`run-${run.key}`, version(run))));
    const episodes = Object.assign({}, ...details.map((each) => each.episodes)), changes = Object.assign({}, ...details.map((each) => each.changes));
    const listedEpisodes = Object.entries(episodes).sort(([, a], [, b]) => a.id.localeCompare(b.id));
    if (!listedEpisodes.length) { by("no-frame").hidden = false; by("no-frame").textContent = "No trial is there yet."; return; }
    options(by("episode"), listedEpisodes.map(([key, each]) => [key, `${each.instruction} (${each.id}${each.level === null ? "" : `, level ${each.level}`})`]), state().get("episode") || listedEpisodes[0][0]);
    const names_of = [...new Set(Object.values(changes).map((each) => each.perturbation))];
    options(by("perturbation"), names_of.map((name) => [name, name]), state().get("change") || "clean");
    const same = Object.entries(changes).filter(([, each]) => each.perturbation === by("perturbation").value).sort(([, a], [, b]) => a.severity - b.severity);
    options(by("severity"), same.map(([, each]) => [String(each.severity), String(each.severity)]), state().get("severity") || String(same[same.length - 1][1].severity));
    const episode = by("episode").value, change = (same.find(([, each]) => String(each.severity) === by("severity").value) || same[0])[0];
    const wanted = [episode, change, ...picked.map(({ name, run }) => name + version(run))].join();
    if (wanted === drawnClip) return by("clip").removeAttribute("aria-busy");
    by("clip").setAttribute("aria-busy", "true");
    const answers = await Promise.all(picked.map(({ run }) => loadOnce(`episode-${run.key}-${episode}`, version(run)).catch(() => ({ trials: [] }))));
    const trials = picked.map(({ model }, place) => answers[place].trials.find((trial) => trial.change === change && trial.model === model.index));
    const lines = picked.map((each, place) => lineOf(each, names[place], place, trials[place]));
    const first = trials.find((trial) => trial && trial.shown.length), source = picked.find((each, place) => trials[place] === first);
    const found = source ? await loadOnce(`frames-${source.run.key}-${episode}-${change}`).catch((error) => ({ problem: error.message })) : { problem: "No model has scored this clip under this perturbation." };
    if (wanted !== [by("episode").value, change, ...chosen().map(({ name, run }) => name + version(run))].join()) return; // another one was chosen meanwhile
    const another = !drawnClip.startsWith(`${episode},${change}`);
    drawnClip = wanted;
    by("clip").removeAttribute("aria-busy");
    const count = first ? first.shown.length : 0, times = found.times && found.times.length === count ? found.times : null;
    for (const line of lines) if (line.progress && line.progress.length !== count) Object.assign(line, { seen: line.progress.length, progress: stretched(line.progress, count) });
    clip = { lines, count, times, frames: found.frames || null, places: found.places || [], truth: first?.truth_progress?.length === count ? first.truth_progress : null, x: () => 0 };
    by("frame").hidden = !clip.frames;
    by("no-frame").hidden = Boolean(clip.frames);
    by("no-frame").textContent = found.problem || "";
    by("clip-note").hidden = !found.note;
    by("clip-note").textContent = found.note || "";
    by("instruction").textContent = first ? `“${first.instruction}”` : "";
    by("seek").max = Math.max(count - 1, 0);
    by("answers").tBodies[0].replaceChildren(...lines.map(answerRow));
    drawChart();
    if (!another) return show(frame);
    stop();
    show(0);
    if (!still.matches && clip.frames) play();
  }

  // ---- what is shown, and when

  let heading = "";
  async function route() {
    const open = state().get("view") || "";
    by("list").hidden = Boolean(open);
    by("side").hidden = open !== "compare";
    by("clip").hidden = open !== "clip";
    if (open !== "clip") stop();
    drawList();
    drawTicked();
    if (open !== heading) {
      heading = open;
      drawnClip = "";
      const title = { compare: "#side h2", clip: "#clip h2" }[open];
      if (shownVersion) document.querySelector(title || "h1").focus();
    }
    try {
      if (open === "compare") await drawCompare();
      if (open === "clip") await drawClip();
      trouble("");
    } catch (error) { trouble(`This cannot be shown: ${error.message}`); }
  }
  async function refresh() {
    let pause = 2000;
    try {
      const found = await load("runs"), next = JSON.stringify(found);
      const running = found.runs.filter((run) => run.state === "running").length, pending = found.runs.some((run) => run.models.some((model) => model.numbers === null));
      const clock = fixed ? "static copy" : `updated ${new Date().toLocaleTimeString("en-GB")}`;
      const count = `${found.runs.length} ${found.runs.length === 1 ? "run" : "runs"}`;
      const said = running ? `${count} · ${running} running` : count;
      if (by("status").textContent !== said) by("status").textContent = said; // it is read aloud
      by("clock").textContent = `· ${clock}`;
      listed = found;
      if (next !== shownVersion) { await route(); shownVersion = next; }
      else trouble("");
      pause = pending ? 500 : running ? 2000 : 5000;
    } catch (error) { trouble(fixed ? error.message : `The server does not answer (${error.message}); trying again. Is \`rewardlab view\` still running?`); }
    if (!fixed) setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", refresh, { once: true }) : refresh()), pause);
  }

  for (const name of ["words", "model", "state", "baselines"]) by(name).oninput = drawList;
  by("order").oninput = () => { const [name, way] = by("order").value.split(" "); sort = { by: name, up: way === "up" }; drawList(); };
  by("compare").onclick = () => go({ view: "compare" });
  by("curves").onclick = () => go({ view: "clip" });
  by("home").onclick = (event) => { event.preventDefault(); go({ view: "" }); };
  by("clear").onclick = () => { location.hash = "#"; };
  by("episode").onchange = () => go({ episode: by("episode").value }, true);
  by("perturbation").onchange = () => go({ change: by("perturbation").value, severity: "" }, true);
  by("severity").onchange = () => go({ severity: by("severity").value, change: by("perturbation").value }, true);
  by("play").onclick = play;
  by("seek").oninput = () => { stop(); show(Number(by("seek").value)); };
  by("chart").onpointerdown = seekAt;
  by("chart").onpointermove = (event) => event.buttons && seekAt(event);
  addEventListener("resize", () => { if (clip && !by("clip").hidden) { drawChart(); show(frame); } });
  addEventListener("hashchange", route);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, button, a, summary")) return;
    if (event.key === "/" && !by("list").hidden) { event.preventDefault(); by("words").focus(); }
    if (by("clip").hidden || !clip) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === " ") { event.preventDefault(); play(); }
    if (step) { event.preventDefault(); stop(); show(frame + step); }
  });
  setTimeout(refresh); // once `rewardlab` is defined, which static documents call
  return { take };
})();
