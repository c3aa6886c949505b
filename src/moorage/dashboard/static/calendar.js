// Dragging in the calendar. It only fills in forms: what it would do is shown there, and a button does it.
"use strict";

(() => {
  const field = (time) => new Date(time).toISOString().slice(0, 16);

  // Over the cells of the heat map: a new lease for that time.
  const usage = document.getElementById("usage");
  let first = null;
  const chosen = (a, b) => {
    const [low, high] = [a, b].map((cell) => cell.cellIndex).sort((x, y) => x - y);
    return [...a.parentElement.cells].filter((cell) => cell.cellIndex >= low && cell.cellIndex <= high);
  };
  const cellOf = (event) => event.target.closest?.("td.cell");
  const clear = () => {
    for (const cell of usage.querySelectorAll("td.chosen")) cell.classList.remove("chosen");
    usage.removeAttribute("data-dragging");
    first = null;
  };
  if (usage) {
    usage.addEventListener("pointerdown", (event) => {
      const cell = cellOf(event);
      if (!cell || event.button !== 0) return;
      event.preventDefault();
      first = cell;
      usage.setAttribute("data-dragging", "");
      cell.classList.add("chosen");
    });
    usage.addEventListener("pointerover", (event) => {
      const cell = first && cellOf(event);
      if (!cell) return;
      for (const each of first.parentElement.cells) each.classList.remove("chosen");
      for (const each of chosen(first, first.parentElement.cells[cell.cellIndex])) each.classList.add("chosen");
    });
    document.addEventListener("pointerup", (event) => {
      if (!first) return;
      const last = cellOf(event);
      if (last && usage.contains(last)) {
        const cells = chosen(first, first.parentElement.cells[last.cellIndex]);
        const table = first.closest("table");
        const query = new URLSearchParams(first.parentElement.dataset.form);
        query.set("start_date", cells[0].dataset.from);
        query.set("end_date", cells.at(-1).dataset.to);
        location.assign(`${table.dataset.new}?${query}`);
      }
      clear();
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && first) clear(); });
  }

  // The bars of one's own leases: the right end, or all of one that has not begun.
  const tracks = document.getElementById("tracks");
  if (!tracks) return;
  tracks.classList.add("draggable");
  const [start, end] = [Date.parse(tracks.dataset.start), Date.parse(tracks.dataset.end)];
  const snap = Number(tracks.dataset.minutes) * 60_000;
  const edge_px = 10;
  let drag = null;

  tracks.addEventListener("pointerdown", (event) => {
    const bar = event.target.closest?.("a[data-lease]");
    if (!bar || event.button !== 0) return;
    const box = bar.querySelector("rect").getBoundingClientRect();
    const isEnd = event.clientX >= box.right - edge_px;
    if (!isEnd && !("moves" in bar.dataset)) return;
    event.preventDefault();
    const note = document.body.appendChild(Object.assign(document.createElement("div"), { className: "drag-note" }));
    note.setAttribute("role", "status");
    const inner = bar.querySelector("svg");
    tracks.setAttribute("data-dragging", "");
    drag = {
      bar, isEnd, note, inner, x: event.clientX, by: 0, was: [inner.getAttribute("x"), inner.getAttribute("width")],
      from: Date.parse(bar.dataset.from), to: Date.parse(bar.dataset.to), width: bar.closest("svg").getBoundingClientRect().width,
    };
  });
  const periodOf = ({ isEnd, from, to, by }) => (isEnd ? [from, Math.max(to + by, from + 60_000)] : [from + by, to + by]);
  const percent = (time) => (100 * (Math.min(Math.max(time, start), end) - start)) / (end - start);
  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.by = Math.round(((event.clientX - drag.x) / drag.width) * (end - start) / snap) * snap;
    const [from, to] = periodOf(drag);
    drag.inner.setAttribute("x", `${percent(from)}%`);
    drag.inner.setAttribute("width", `${Math.max(percent(to) - percent(from), 0.4)}%`);
    drag.bar.classList.toggle("dragged", drag.by !== 0);
    drag.note.textContent = `${moorageTimes.text(from)} to ${moorageTimes.text(to)}`;
    drag.note.style.left = `${event.clientX + 14}px`;
    drag.note.style.top = `${event.clientY + 14}px`;
  });
  const stop = () => {
    drag.note.remove();
    drag.bar.classList.remove("dragged");
    tracks.removeAttribute("data-dragging");
    drag = null;
  };
  document.addEventListener("pointerup", () => {
    if (!drag) return;
    const { bar, by, isEnd } = drag;
    const [from, to] = periodOf(drag);
    if (by) {
      bar.addEventListener("click", (event) => event.preventDefault(), { once: true });
      const query = new URLSearchParams(isEnd ? { end_date: field(to) } : { start_date: field(from), end_date: field(to) });
      location.assign(`${tracks.dataset.leases}/${bar.dataset.lease}/change?${query}`);
    }
    stop();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !drag) return;
    drag.inner.setAttribute("x", drag.was[0]);
    drag.inner.setAttribute("width", drag.was[1]);
    stop();
  });
})();
