"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const make = (tag, text, properties = {}) => Object.assign(document.createElement(tag), { textContent: text ?? "" }, properties);
  const named = (text) => make("bdi", text); // names may hold letters that change the direction of writing
  const percent = (p) => (p > 0 && p < 0.005 ? "< 1 %" : p > 0.995 && p < 1 ? "> 99 %" : `${Math.round(100 * p)} %`);

  let mode = null; // "verify" or "decide"; the server's choice at first
  let state = null;
  let row = null; // the row that is shown
  let shownAt = 0;
  let batch = null; // the rows that are shown together, if they are
  let finished = null; // what Enter does when all rows are answered
  let queue = Promise.resolve(); // keys are handled one after the other, none is lost and none overtakes another
  let round = 0; // keys of an earlier round are dropped: something failed before them

  const view = () => ({ mode, show: at("show").value, class: at("class").value, pair: at("pair").value });

  async function ask(name, values = {}, method = "GET") {
    const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== ""));
    const options = { method, cache: "no-store" };
    let address = `api/${name}`;
    if (method === "POST") {
      options.headers = { "Content-Type": "application/json" };
      options.body = JSON.stringify(given);
    } else address += `?${new URLSearchParams(given)}`;
    let reply;
    try {
      reply = await fetch(address, options);
    } catch {
      throw new Error("The server does not answer. Start `candidly review` again; everything that was saved is kept.");
    }
    const found = await reply.json().catch(() => ({ error: `the server answered ${reply.status}` }));
    if (!reply.ok) throw new Error(found.error);
    return found;
  }

  // Run a step after all earlier ones; if it fails, say so and drop the keys that were pressed meanwhile.
  function enqueue(step, event) {
    const mine = round;
    queue = queue.then(async () => {
      if (mine !== round) return;
      try {
        await step();
        at("error").hidden = true;
        if (event) requestAnimationFrame(() => performance.measure("answer", { start: event.timeStamp }));
      } catch (error) {
        round += 1;
        say("");
        at("error").textContent = error.message;
        at("error").hidden = false;
      }
    });
    return queue;
  }

  const say = (text) => { at("saved").textContent = text; };

  function duration(seconds) {
    if (seconds < 90) return "about a minute left";
    const minutes = Math.round(seconds / 60);
    return minutes < 120 ? `about ${minutes} minutes left` : `about ${Math.round(minutes / 60)} hours left`;
  }

  function showProgress(progress) {
    const { decided, total, left } = progress;
    at("bar").max = Math.max(total, 1);
    at("bar").value = decided;
    const rest = left === null || decided === total ? "" : ` · ${duration(left)}`;
    at("progress").textContent = `${decided.toLocaleString("en")} of ${total.toLocaleString("en")} rows answered${rest}`;
    for (const id of ["undo", "undo-several"]) at(id).disabled = !progress.undo;
    at("redo").disabled = !progress.redo;
  }

  function cellsOf(one, most = Infinity) {
    const list = document.createElement("dl");
    for (const cell of one.cells.slice(0, most)) {
      const text = cell.text.length > 120 && most < Infinity ? `${cell.text.slice(0, 120)}…` : cell.text;
      list.append(pairOf(cell.name, text));
    }
    return list;
  }

  function pairOf(name, text) {
    const pair = document.createElement("div");
    pair.append(make("dt", name), make("dd", text));
    return pair;
  }

  function pictureOf(one) {
    const image = make("img", "", { src: `image/${one.row}`, alt: `Image of row ${one.id}` });
    image.addEventListener("error", () => image.replaceWith(make("p", "The image of this row cannot be shown.", { className: "quiet" })));
    return image;
  }

  function show(found) {
    showProgress(found.progress);
    const { decided, total } = found.progress;
    const changed = !row || !found.row || row.row !== found.row.row;
    row = found.row;
    batch = null;
    at("several").hidden = true;
    at("batch-button").setAttribute("aria-pressed", "false");
    at("one").hidden = row === null;
    const end = mode === "verify" ? decided === total : row === null || decided === total;
    if (end) finish(row === null);
    else [finished, at("finished").hidden] = [null, true];
    if (row === null) return;
    at("place").textContent = `Row ${(row.place + 1).toLocaleString("en")} of ${row.total.toLocaleString("en")}`;
    at("title").replaceChildren(named(row.id));
    at("picture").replaceChildren(...(row.image ? [pictureOf(row)] : []));
    const isLong = (cell) => cell.text.length > 100 || cell.text.includes("\n");
    at("texts").replaceChildren(...row.cells.filter(isLong).flatMap((cell) => [make("h2", cell.name), make("p", cell.text)]));
    at("cells").replaceChildren(...cellsOf({ cells: row.cells.filter((cell) => !isLong(cell)) }).childNodes);
    if (state.hidden_columns) at("cells").append(pairOf("more columns", `${state.hidden_columns} are not shown`));
    showVotes();
    showCandidates();
    if (changed) {
      shownAt = performance.now();
      showSimilar(row.row);
      if (!end && document.activeElement?.closest("dialog, select, summary") == null) at("title").focus({ preventScroll: true });
    }
  }

  function showVotes() {
    const votes = row.votes ?? [];
    at("votes").hidden = !votes.length;
    at("votes").querySelector("ul").replaceChildren(...votes.map((vote) => {
      const item = make("li", "");
      item.append(named(vote.annotator), ": ", named(vote.label));
      return item;
    }));
  }

  function showCandidates() {
    const special = [state.none, state.unknown];
    at("candidates").replaceChildren(...row.candidates.map((one, i) => {
      const button = make("button", "", { type: "button", className: "candidate" });
      const key = one.outside ? "0" : i < 9 ? String(i + 1) : "";
      button.append(make("kbd", key), " ", named(one.name));
      if (key) button.setAttribute("aria-keyshortcuts", key);
      const notes = [one.outside && "not a candidate; among all classes", one.removed && "removed by cleaning"].filter(Boolean);
      if (notes.length) button.append(" ", make("small", notes.join(", ")));
      if (one.p !== undefined) {
        const bar = make("span", "", { className: "share" });
        bar.append(make("span", ""));
        bar.firstChild.style.width = `${100 * one.p}%`;
        bar.setAttribute("aria-hidden", "true");
        button.append(" ", make("span", percent(one.p), { className: "p" }), bar);
      }
      button.setAttribute("aria-pressed", String(row.answer === one.name));
      button.addEventListener("click", (event) => decide(one.name, event));
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
    at("none").setAttribute("aria-pressed", String(row.answer === state.none));
    at("unknown").setAttribute("aria-pressed", String(row.answer === state.unknown));
    const elsewhere = row.answer !== null && !special.includes(row.answer) && !row.candidates.some((one) => one.name === row.answer);
    at("given").replaceChildren(...(elsewhere ? ["Your answer: ", named(row.answer)] : []));
  }

  let waiting = 0;
  function showSimilar(number) {
    if (mode === "verify") return;
    clearTimeout(waiting);
    const list = at("similar").querySelector("ul");
    list.replaceChildren();
    at("similar").hidden = false;
    waiting = setTimeout(async () => {
      if (!at("similar").open) return;
      const found = await ask("similar", { mode, row: number }).catch((error) => ({ rows: [], reason: error.message }));
      if (row === null || row.row !== number) return;
      if (found.reason) list.replaceChildren(make("li", found.reason, { className: "quiet" }));
      else list.replaceChildren(...found.rows.map((one) => {
        const item = make("li", "");
        const head = make("p", "");
        head.append(make("strong", ""), " ");
        head.firstChild.append(named(one.id));
        const more = one.candidates.length > 5 ? ` and ${one.candidates.length - 4} more` : "";
        const some = one.candidates.slice(0, more ? 4 : 5).join(", ");
        const answer = one.answer === null ? `candidates: ${some}${more}` : `decided: ${one.answer}`;
        head.append(make("bdi", answer, { className: "quiet" }));
        item.append(head, cellsOf(one, 6));
        return item;
      }));
    }, 200);
  }

  function finish(empty) {
    const verify = mode === "verify";
    at("finished-title").textContent = verify ? "All rows are answered." : empty ? "No rows to show here." : "All rows of this view are answered.";
    at("certificate").replaceChildren();
    at("finished").hidden = false;
    const button = at("go-on");
    button.hidden = !verify;
    finished = verify ? certify : null;
    button.replaceChildren("Show the certificate ", make("kbd", "Enter"));
    if (verify) at("finished").focus();
  }

  async function certify() {
    say("computing the certificate…");
    const found = await ask("certificate", { mode });
    say("");
    if (found.missing) throw new Error(`${found.missing} planned rows have no answer yet.`);
    at("finished-title").textContent = "The certificate";
    at("certificate").replaceChildren(...found.lines.map((line) => make("li", line)));
    at("go-on").replaceChildren("Go on: decide the doubtful rows ", make("kbd", "Enter"));
    finished = () => start("decide");
    at("finished").focus();
  }

  const seconds = () => Math.max(0, performance.now() - shownAt) / 1000;

  // Save an answer, and show the next row. The server replies when the answer is on the disk, not earlier.
  async function save(answer) {
    if (row === null) return;
    say("saving…");
    const items = [{ row: row.row, answer, seconds: seconds() }];
    const found = await ask("decide", { ...view(), items }, "POST");
    if (answer !== null && ![...state.classes, state.none, state.unknown].includes(answer)) state.classes.push(answer);
    show(found);
    say("saved");
  }

  const decide = (answer, event) => enqueue(() => save(answer), event);

  const move = (step, event) => enqueue(async () => show(await ask("row", { ...view(), row: row?.row, step })), event);

  function takeBack(name, event) {
    enqueue(async () => {
      const several = batch !== null;
      const found = await ask(name, { ...view(), row: row?.row }, "POST");
      if (several) await showBatch();
      else show(found);
      say(found.saved.length ? `${name === "undo" ? "undone" : "redone"}, saved` : `nothing to ${name}`);
    }, event);
  }

  // Enter: keep the answer, or accept the suggestion, and go on. In mode verify there is no suggestion.
  function accept(event) {
    if (batch !== null) return acceptAll(event);
    enqueue(async () => {
      if (finished) return finished();
      if (row === null) return undefined;
      if (row.answer !== null || mode === "verify") return show(await ask("row", { ...view(), row: row.row, next: 1 }));
      return save(row.suggestion);
    }, event);
    return undefined;
  }

  async function showBatch() {
    const found = await ask("batch", { ...view(), row: row?.row });
    showProgress(found.progress);
    batch = found.rows;
    shownAt = performance.now();
    at("one").hidden = true;
    at("finished").hidden = true;
    at("several").hidden = false;
    at("batch-button").setAttribute("aria-pressed", "true");
    at("several-title").textContent = batch.length ? `${batch.length} rows at once` : "No rows without an answer here";
    at("accept").disabled = !batch.length;
    at("cards").replaceChildren(...batch.map((one) => {
      const label = make("label", "");
      const box = make("input", "", { type: "checkbox", checked: true });
      box.dataset.row = one.row;
      const head = make("span", "", { className: "head" });
      head.append(make("strong", ""), ` ${percent(one.candidates[0].p)}`);
      head.firstChild.append(named(one.suggestion));
      const second = one.candidates[1];
      const rival = make("span", "", { className: "quiet" });
      rival.append(named(one.id));
      if (second) rival.append(" · or ", named(second.name), ` ${percent(second.p)}`);
      label.append(box, head, rival);
      const card = document.createElement("li");
      card.append(label, ...(one.image ? [pictureOf(one)] : []), cellsOf(one, 5));
      return card;
    }));
    at("several-title").focus({ preventScroll: true });
  }

  function acceptAll(event) {
    enqueue(async () => {
      if (batch === null || !batch.length) return;
      const ticked = new Set([...at("cards").querySelectorAll("input:checked")].map((box) => Number(box.dataset.row)));
      const chosen = batch.filter((one) => ticked.has(one.row));
      if (!chosen.length) throw new Error("No row is ticked.");
      const each = seconds() / chosen.length;
      const items = chosen.map((one) => ({ row: one.row, answer: one.suggestion, seconds: each }));
      say("saving…");
      await ask("decide", { ...view(), items }, "POST");
      await showBatch();
      say(`saved ${items.length} rows`);
    }, event);
  }

  function toggleBatch(event) {
    if (mode === "verify") return;
    enqueue(async () => {
      if (batch === null) await showBatch();
      else show(await ask("row", { ...view(), row: row?.row, next: 1 }));
    }, event);
  }

  // The dialog to choose any class.
  let options = [];
  let active = 0;
  function listClasses() {
    const words = at("find").value.trim().toLowerCase();
    const starts = (name) => Number(!name.toLowerCase().startsWith(words));
    const matching = state.classes.filter((name) => name.toLowerCase().includes(words)).sort((a, b) => starts(a) - starts(b));
    options = matching.slice(0, 50).map((name) => ({ name, text: name }));
    const typed = at("find").value.trim();
    if (typed && !state.classes.some((name) => name.toLowerCase() === words)) options.push({ name: typed, text: `add the class “${typed}”` });
    active = Math.min(active, Math.max(options.length - 1, 0));
    at("found").replaceChildren(...options.map((one, i) => {
      const item = named(one.text);
      item.id = `option-${i}`;
      item.role = "option";
      item.ariaSelected = String(i === active);
      item.addEventListener("click", () => choose(i));
      return item;
    }));
    at("find").setAttribute("aria-activedescendant", options.length ? `option-${active}` : "");
    at(`option-${active}`)?.scrollIntoView({ block: "nearest" });
  }

  function choose(i) {
    if (!options[i]) return;
    at("search").close();
    decide(options[i].name);
  }

  function openSearch() {
    if (row === null || batch !== null) return;
    at("find").value = "";
    active = 0;
    listClasses();
    at("search").showModal();
    at("find").focus();
  }

  async function showReviewers() {
    const box = at("reviewers").querySelector("div");
    if (!at("reviewers").open) return;
    const found = await ask("reviewers", { mode });
    const lines = found.pairs.map((one) => {
      const kappa = one.kappa === null ? "" : `, Cohen’s kappa ${one.kappa.toFixed(2)}`;
      return make("p", `${one.reviewers.join(" and ")} agree on ${percent(one.observed)} of ${one.rows} rows${kappa}.`);
    });
    const list = make("ul", "");
    for (const one of found.disagreements) {
      const item = make("li", "");
      const button = make("button", "", { type: "button" });
      button.append("Row ", named(one.id));
      button.disabled = one.row === null;
      button.addEventListener("click", () => {
        at("show").value = "disagreements";
        enqueue(async () => show(await ask("row", { ...view(), row: one.row })));
      });
      item.append(button, " ");
      Object.entries(one.answers).forEach(([name, answer], i) => item.append(i ? ", " : "", named(name), ": ", named(answer)));
      list.append(item);
    }
    box.replaceChildren(...(lines.length ? lines : [make("p", "No row was answered by two reviewers yet.")]), list);
  }

  async function start(wanted) {
    state = await ask("state", { mode: wanted });
    mode = state.mode;
    document.title = `Review: ${state.table}`;
    at("table").textContent = state.table;
    at("mode").textContent = mode;
    at("who").textContent = `by ${state.reviewer}`;
    const verify = mode === "verify";
    at("filters").hidden = verify;
    at("reviewers").hidden = verify;
    at("help-enter").textContent = verify ? "go to the next row without an answer" : "accept the first class, save, go to the next row";
    for (const one of document.querySelectorAll(".deciding")) one.hidden = verify;
    if (!verify) {
      const known = state.classes.slice(0, state.known);
      at("class").replaceChildren(new Option("any", ""), ...known.map((name, i) => new Option(name, i)));
      at("pair").replaceChildren(new Option("any", ""), ...state.pairs.map((one) => {
        const [first, second] = one.pair.map((j) => state.classes[j]);
        return new Option(`${first} / ${second} (${one.rows.toLocaleString("en")})`, one.pair.join(","));
      }));
    }
    row = null;
    finished = null;
    at("finished").hidden = true;
    show(await ask("row", { ...view(), next: 1 }));
  }

  const keys = {
    Enter: accept,
    n: (event) => decide(state.none, event),
    c: (event) => decide(state.unknown, event),
    u: (event) => takeBack("undo", event),
    r: (event) => takeBack("redo", event),
    Delete: (event) => decide(null, event),
    Backspace: (event) => decide(null, event),
    ArrowLeft: (event) => move(-1, event),
    ArrowUp: (event) => move(-1, event),
    ArrowRight: (event) => move(1, event),
    ArrowDown: (event) => move(1, event),
    b: toggleBatch,
    a: (event) => batch !== null && acceptAll(event),
    "/": openSearch,
    "?": () => at("help").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (!state || document.querySelector("dialog[open]") || target.closest("input:not([type=checkbox]), select, textarea")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && (key === "z" || key === "y")) {
      event.preventDefault();
      takeBack(key === "y" || event.shiftKey ? "redo" : "undo", event);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key === "Enter" && target.closest("button, summary")) return; // it presses what has the focus
    const single = batch === null && row !== null;
    if (/^[0-9]$/.test(key)) {
      event.preventDefault();
      // The candidate is looked up when it is its turn: keys that were pressed ahead are about later rows.
      enqueue(async () => {
        const own = row?.candidates.filter((one) => !one.outside) ?? [];
        const chosen = key === "0" ? row?.candidates.find((one) => one.outside) : own[Number(key) - 1];
        if (batch === null && chosen) await save(chosen.name);
      }, event);
    } else if (Object.hasOwn(keys, key) && (single || !/^(n|c|Delete|Backspace|Arrow)/.test(key))) {
      event.preventDefault();
      keys[key](event);
    }
  });

  at("find").addEventListener("input", () => { active = 0; listClasses(); });
  at("find").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      active = (active + step + options.length) % options.length;
      listClasses();
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(active);
    }
  });
  const clicks = {
    "help-button": () => at("help").showModal(),
    "close-help": () => at("help").close(),
    "close-search": () => at("search").close(),
    "search-button": openSearch,
    "batch-button": toggleBatch,
    none: (event) => decide(state.none, event),
    unknown: (event) => decide(state.unknown, event),
    back: (event) => move(-1, event),
    forth: (event) => move(1, event),
    undo: (event) => takeBack("undo", event),
    redo: (event) => takeBack("redo", event),
    "undo-several": (event) => takeBack("undo", event),
    accept: acceptAll,
    "go-on": () => enqueue(async () => finished && finished()),
  };
  for (const [id, act] of Object.entries(clicks)) at(id).addEventListener("click", act);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("change", () => {
    enqueue(async () => (batch === null ? show(await ask("row", { ...view(), next: 1 })) : showBatch()));
  });
  at("similar").addEventListener("toggle", () => row && showSimilar(row.row));
  at("reviewers").addEventListener("toggle", () => enqueue(showReviewers));
  enqueue(() => start(null));
})();
