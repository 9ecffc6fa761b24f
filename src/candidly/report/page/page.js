"use strict";
(() => {
  const table = document.getElementById("rows");
  if (!table) return;
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const find = document.getElementById("find");
  const choice = document.getElementById("class");
  const shown = document.getElementById("shown");
  const whole = (number) => number.toLocaleString("en-GB");
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  // Read all cells once, so that sorting and filtering only compare.
  const rows = [...body.rows].map((row) => ({
    row,
    classes: new Set(row.dataset.classes.split(" ")),
    text: [row.textContent, ...[...row.querySelectorAll("[title]")].map((one) => one.title)].join("\n").toLowerCase(),
    keys: heads.map((head, i) => {
      const cell = row.cells[i];
      if (head.dataset.kind === "text") return cell.textContent.trim();
      return cell.dataset.value === "" ? null : Number(cell.dataset.value);
    }),
  }));
  const step = 100; // rows to lay out at a time; more are added when the last one is near
  const box = table.parentElement;
  let selected = rows;
  let column = -1;
  let direction = 1;

  const compare = (a, b) => {
    const [x, y] = [a.keys[column], b.keys[column]];
    const [noX, noY] = [x === null || x === "", y === null || y === ""];
    if (noX || noY) return noX - noY; // missing values come last in both directions
    return direction * (typeof x === "number" ? x - y : collator.compare(x, y));
  };

  const extend = () => {
    if (box.scrollTop + 2 * box.clientHeight < box.scrollHeight) return;
    const next = selected.slice(body.rows.length, body.rows.length + step);
    body.append(...next.map((one) => one.row));
  };

  const update = () => {
    const words = find.value.trim().toLowerCase();
    selected = rows.filter(
      (one) => one.text.includes(words) && (choice.value === "" || one.classes.has(choice.value)),
    );
    if (column >= 0) selected.sort(compare);
    body.replaceChildren(...selected.slice(0, step).map((one) => one.row));
    box.scrollTop = 0;
    table.setAttribute("aria-rowcount", selected.length + 1);
    shown.textContent = `${whole(selected.length)} of ${whole(rows.length)} listed rows`;
    heads.forEach((head, i) => {
      head.setAttribute("aria-sort", i !== column ? "none" : direction > 0 ? "ascending" : "descending");
    });
  };

  heads.forEach((head, i) => {
    head.querySelector("button").addEventListener("click", () => {
      if (column !== i) [column, direction] = [i, 1];
      else if (direction > 0) direction = -1;
      else column = -1;
      update();
    });
  });
  box.addEventListener("scroll", extend, { passive: true });
  find.addEventListener("input", update);
  choice.addEventListener("change", update);
  const controls = document.getElementById("controls");
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.hidden = false;
  update();
})();
