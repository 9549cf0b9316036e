"use strict";
(() => {
  document.documentElement.classList.add("js");
  const SVG = "http://www.w3.org/2000/svg";

  // Data embedded in the page: gzip in base64. No network access.
  const unpack = (element) => {
    const bytes = Uint8Array.from(atob(element.textContent.trim()), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const texts = new Map(), parsed = new Map();
  const textOf = (run) => {
    if (!texts.has(run)) texts.set(run, unpack(document.getElementById(`document-${run}`)));
    return texts.get(run);
  };
  const documentOf = (run) => {
    if (!parsed.has(run)) parsed.set(run, textOf(run).then(JSON.parse));
    return parsed.get(run);
  };

  const make = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const tag = (name, text, kind = "") => {
    const element = document.createElement(name);
    element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  const short = (value) => value >= 10000 ? value.toFixed(0) : value.toFixed(2);

  // Every sample as a dot, in order, and a histogram.
  const drawing = (samples, unit, statistics) => {
    const width = 640, height = 190, left = 70, right = 190, top = 12, bottom = 30;
    const low = Math.min(...samples), high = Math.max(...samples), span = high - low || Math.abs(high) * 0.01 || 1;
    const y = (value) => top + (high + 0.06 * span - value) / (1.12 * span) * (height - top - bottom);
    const x = (i) => left + (i + 0.5) / samples.length * (width - left - right);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart" });
    svg.append(make("title", {}, `${samples.length} samples from ${short(low)} to ${short(high)} ${unit}`));
    if (statistics.interval) {
      const [lowest, highest] = statistics.interval.map((value) => Math.min(high + 0.06 * span, Math.max(low - 0.06 * span, value)));
      svg.append(make("rect", { x: left, width: width - left - right, y: y(highest), class: "interval",
                                height: Math.max(1, y(lowest) - y(highest)) }));
    }
    for (const value of low === high ? [low] : [low, statistics.median, high]) {
      svg.append(make("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }));
    }
    for (const value of low === high ? [low] : [low, high]) {
      svg.append(make("text", { x: left - 6, y: y(value) + 4, class: "end" }, short(value)));
    }
    samples.forEach((value, i) => svg.append(make("circle", { cx: x(i), cy: y(value), r: 3.5, class: "dot" })));
    const bins = Math.min(12, Math.max(1, Math.ceil(Math.sqrt(samples.length)))), counts = Array(bins).fill(0);
    for (const value of samples) counts[Math.min(bins - 1, Math.floor((value - low) / span * bins))] += 1;
    const most = Math.max(...counts), start = width - right + 14;
    counts.forEach((count, i) => {
      const upper = y(low + (i + 1) / bins * (high - low)), lower = y(low + i / bins * (high - low));
      svg.append(make("rect", { x: start, y: upper + 0.5, height: Math.max(2, lower - upper - 1), class: "histogram",
                                width: count / most * (right - 50) }));
      if (count) svg.append(make("text", { x: start + count / most * (right - 50) + 4, y: (upper + lower) / 2 + 4 },
                                 String(count)));
    });
    svg.append(make("text", { x: left, y: height - 8 }, `${unit}, samples in order`));
    svg.append(make("text", { x: start, y: height - 8 }, "how many"));
    return svg;
  };

  const show = async (table, cell) => {
    const line = cell.parentElement, [run, testcase, index] = line.dataset.at.split(".").map(Number);
    const column = cell.cellIndex - 1, i = Number(line.dataset.i ?? column), j = Number(line.dataset.j ?? column);
    const panel = table.closest(".block").querySelector(".detail");
    const result = (await documentOf(run)).testcases[testcase], data = result.tables[index];
    const found = (data.cells || []).find((one) => one.row === i && one.column === j);
    const unit = table.dataset.unit, divisor = Number(table.dataset.divisor);
    panel.replaceChildren(tag("p", `${result.name} ${data.key} ${data.rows.labels[i]}, ${data.columns.labels[j]}`, "strong"));
    table.querySelector(".chosen")?.classList.remove("chosen");
    cell.classList.add("chosen");
    if (!found || found.value === undefined || found.value === null) {
      panel.append(tag("p", found ? found.reason : "This value does not exist."));
    } else {
      const s = found.statistics, facts = [`median ${short(found.value / divisor)} ${unit}`];
      const interval = found.interval?.map((value) => value / divisor);
      if (interval) facts.push(`95% interval ${short(interval[0])} to ${short(interval[1])}`);
      if (s) facts.push(`mean ${short(s.mean / divisor)}`, `n ${s.n}`);
      if (found.rounds) facts.push(`${found.rounds.length} rounds`);
      if (found.limit) facts.push(`limit ${short(found.limit / divisor)}`);
      if (found.expected) facts.push(`expected ${short(found.expected[0] / divisor)} to ${short(found.expected[1] / divisor)}`);
      if (found.copies > 1) facts.push(`${found.copies} copies per sample`);
      panel.append(tag("p", facts.join(" · ")));
      if (cell.title) panel.append(tag("p", cell.title));
      const samples = (found.samples || []).map((value) => value / divisor);
      if (samples.length && s) {
        panel.append(drawing(samples, unit, { interval, median: s.median / divisor }));
      } else {
        panel.append(tag("p", "This page does not contain the samples."));
      }
    }
    panel.hidden = false;
  };

  // A drawing wider than the screen begins at what is wrong, or at its leftmost box.
  for (const scroller of document.querySelectorAll(".drawing:not(.pairs) .scroll")) {
    const at = (element) => element.getBoundingClientRect().left - scroller.getBoundingClientRect().left;
    const wrong = scroller.querySelector(".box.fail, .label.fail, .label.warn, .box.busy");
    const boxes = [...scroller.querySelectorAll(".box")].filter((box) => box.getBBox().width < 400);
    if (wrong) scroller.scrollLeft = at(wrong) + wrong.getBoundingClientRect().width / 2 - scroller.clientWidth / 2;
    else if (boxes.length) scroller.scrollLeft = Math.min(...boxes.map(at)) - 8;
  }

  // Cells are reached with Tab and arrow keys.
  const walk = (table) => {
    const rows = [...table.tBodies[0].rows];
    if (!rows.length || rows[0].cells.length < 2) return;
    table.setAttribute("role", "grid");
    rows[0].cells[1].tabIndex = 0;
    const go = (from, row, column) => {
      const to = rows[row]?.cells[column];
      if (!to || column < 1 || to.classList.contains("x")) return;
      from.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    };
    table.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td:not(.x)");
      if (!cell) return;
      const row = cell.parentElement.sectionRowIndex, column = cell.cellIndex;
      const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
                      ArrowRight: [row, column + 1], Home: [row, 1], End: [row, rows[row].cells.length - 1] };
      if (moves[event.key]) go(cell, ...moves[event.key]);
      else if (event.key === "Enter" || event.key === " ") show(table, cell);
      else return;
      event.preventDefault();
    });
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td:not(.x)");
      if (!cell) return;
      table.querySelector("td[tabindex='0']")?.setAttribute("tabindex", "-1");
      cell.tabIndex = 0;
      cell.focus();
      show(table, cell);
    });
  };

  // Devices and links of a run by name, each with the indices of its links, which cells name too.
  const places = new Map();
  const filter = document.getElementById("filter"), count = document.querySelector("output");
  const linksOf = (element) => new Set(element.dataset.links.split(" ").filter(Boolean));
  const meet = (links, other) => other.some((link) => links.has(link));

  // The cells of a query: a place, or words that name a testcase, row or column.
  const matcher = (query, known) => {
    const whole = known?.get(query), terms = whole ? [query] : query.split(/\s+/).filter(Boolean);
    return (words, labels, links) => terms.every((term) => {
      const place = known?.get(term);
      if (place && links) return meet(place, links);
      return labels.includes(term) || (!place && words.includes(term)) || labels.some((label) => !place && label.includes(term));
    });
  };

  const apply = (query, fold) => {
    query = query.trim().toLowerCase();
    let values = 0;
    for (const body of document.querySelectorAll(".run-body")) {
      const known = places.get(body.dataset.run), matches = matcher(query, known);
      const chosen = known?.get(query);
      for (const place of body.querySelectorAll(".place")) {
        place.classList.toggle("faint", Boolean(chosen) && !meet(chosen, place.dataset.links.split(" ")));
      }
      for (const group of body.querySelectorAll("details.group")) {
        let hits = 0;
        for (const part of group.querySelectorAll(".part")) {
          const words = part.dataset.cases.toLowerCase();
          let own = 0;
          for (const table of part.querySelectorAll("table.heat")) {
            const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.toLowerCase());
            for (const line of table.tBodies[0].rows) {
              const named = (line.dataset.case ?? words).toLowerCase(), label = line.cells[0].textContent.trim().toLowerCase();
              for (const cell of line.querySelectorAll("td:not(.x)")) {
                const fits = !query || matches(named, [label, heads[cell.cellIndex]], cell.dataset.l?.split(" "));
                cell.classList.toggle("faint", !fits);
                own += fits;
              }
            }
          }
          if (!own && part.querySelector("details.packed script")) own = Number(matches(words, [], undefined));
          if (fold) part.hidden = !own;
          hits += own;
        }
        values += hits;
        if (!fold) continue;
        group.hidden = !hits;
        if (query && hits) group.querySelectorAll(":scope > .more").forEach((more) => { more.open = true; });
        if (query && hits) group.open = true;
      }
    }
    if (fold && count) count.textContent = query ? `${values} values` : "";
  };

  const choose = (name) => {
    filter.value = filter.value === name ? "" : name;
    apply(filter.value, true);
  };

  const enlivenPlace = (place) => {
    const name = place.dataset.place, body = place.closest(".run-body"), run = body.dataset.run;
    if (!places.has(run)) places.set(run, new Map());
    if (!places.get(run).has(name.toLowerCase())) {
      places.get(run).set(name.toLowerCase(), linksOf(place));
      const option = document.createElement("option");
      option.value = name;
      document.getElementById("places").append(option);
    }
    place.addEventListener("click", () => choose(name));
    place.addEventListener("pointerenter", () => apply(name, false));
    place.addEventListener("pointerleave", () => apply(filter.value, false));
    if (place.querySelector(".link")) return; // keyboards reach devices in the drawing, and links in the filter
    place.setAttribute("role", "button");
    place.setAttribute("aria-label", `Show the values of ${name}`);
    place.tabIndex = 0;
    place.ownerSVGElement.setAttribute("role", "group");
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(name);
    });
  };

  // Large parts are packed, and unpacked when opened. They were escaped before packing.
  const unfold = (details) => {
    details.addEventListener("toggle", async () => {
      const source = details.querySelector(":scope > script");
      if (!details.open || !source) return;
      const inside = new DOMParser().parseFromString(await unpack(source), "text/html");
      const added = [...inside.body.childNodes];
      source.replaceWith(...added);
      added.filter((node) => node.nodeType === Node.ELEMENT_NODE).forEach(enliven);
      if (filter.value) apply(filter.value, true);
    }, { passive: true });
  };

  const download = (button) => {
    button.addEventListener("click", async () => {
      const blob = new Blob([await textOf(button.dataset.run)], { type: "application/json" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  };

  // Pages opened from a file or over HTTP may not use the clipboard directly.
  const copy = (button) => {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  };

  const enliven = (root) => {
    root.querySelectorAll("button.copy").forEach(copy);
    root.querySelectorAll("table.heat:not(.blocks)").forEach(walk);
    root.querySelectorAll("details.packed").forEach(unfold);
    root.querySelectorAll("button.download").forEach(download);
    root.querySelectorAll(".place").forEach(enlivenPlace);
  };
  enliven(document.body);
  filter.addEventListener("input", () => apply(filter.value, true));

  // A link into something folded opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target?.querySelector(":scope > details.run")?.setAttribute("open", "");
    if (target?.closest("details")) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
})();
