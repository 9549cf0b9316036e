"use strict";
document.documentElement.classList.add("js");
const body = document.querySelector("tbody");
const rows = [...body.rows];
const heads = [...document.querySelectorAll("thead th")];

function key(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent;
  const number = cell.dataset.sort === undefined || text === "" ? NaN : Number(text);
  return { text, number };
}

function sort(column) {
  const head = heads[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const keys = new Map(rows.map((row) => [row, key(row, column)]));
  rows.sort((a, b) => {
    const x = keys.get(a), y = keys.get(b);
    const missing = (x.text === "") - (y.text === "");  // last in both orders
    if (missing) return missing;
    const order = Number.isNaN(x.number) ? x.text.localeCompare(y.text, "en", { numeric: true }) : x.number - y.number;
    return down ? -order : order;
  });
  body.append(...rows);
}

heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  button.addEventListener("click", () => sort(column));
  head.replaceChildren(button);
});

const filter = document.getElementById("filter");
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => texts.get(row).includes(word));
    shown += !row.hidden;
  }
  document.getElementById("matches").textContent = words.length ? `${shown} of ${rows.length}` : "";
});
