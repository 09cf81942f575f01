// The crosshair and tooltip of charts, and zoom. The figures come from the table behind the chart.

function tableOf(chart) {
  const table = chart.querySelector("details.data table");
  return table && { names: [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent), rows: table.tBodies[0].rows };
}

function element(kind, className, text = "") {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  made.dataset.kept = "yes";
  return made;
}

function fill(tip, names, row) {
  const [at, ...values] = [...row.cells].map((cell) => cell.textContent.trim());
  const parts = [element("b", "", at)];
  names.forEach((name, place) => {
    if (values[place]) parts.push(element("span", "", name), element("span", "", values[place]));
  });
  tip.replaceChildren(...parts);
}

/** The step at a place of a chart. Lines have a point at both ends; bars fill their part of the width. */
function stepAt(area, clientX, count) {
  const box = area.getBoundingClientRect();
  const share = Math.max(0, Math.min(0.9999, (clientX - box.left) / box.width));
  return area.dataset.steps === "points" ? Math.round(share * (count - 1)) : Math.floor(share * count);
}

function show(area, event) {
  const data = tableOf(area.closest(".chart"));
  if (!data?.rows.length) return;
  const box = area.getBoundingClientRect();
  const count = data.rows.length;
  const wide = area.dataset.steps === "points";
  const index = stepAt(area, event.clientX, count);
  const x = (wide ? index / Math.max(1, count - 1) : (index + 0.5) / count) * box.width;
  const cross = area.querySelector(".cross") ?? area.appendChild(element("div", "cross"));
  const tip = area.querySelector(".tip") ?? area.appendChild(element("div", "tip"));
  fill(tip, data.names, data.rows[index]);
  cross.style.left = `${x}px`;
  const left = x + tip.offsetWidth + 20 > box.width ? x - tip.offsetWidth - 12 : x + 12;
  tip.style.left = `${Math.max(-20, left)}px`;
}

function hide(area) {
  for (const each of area.querySelectorAll(".cross, .tip")) each.remove();
}

document.addEventListener("pointermove", (event) => {
  const area = event.target.closest?.(".chart .area");
  for (const other of document.querySelectorAll(".chart .area:has(.tip)")) if (other !== area) hide(other);
  if (area) show(area, event);
});
document.addEventListener("pointerleave", () => document.querySelectorAll(".chart .area").forEach(hide));

// Dragging across a chart shows that time in all charts of the page.

const LEAST_PX = 8; // a shorter way is a click
let drag = null; // the chart and where the pointer went down

function placeRange(event) {
  const box = drag.area.getBoundingClientRect();
  const within = (x) => Math.max(0, Math.min(box.width, x - box.left));
  const [left, right] = [within(drag.x), within(event.clientX)].sort((a, b) => a - b);
  const range = drag.area.querySelector(".range") ?? drag.area.appendChild(element("div", "range"));
  range.style.left = `${left}px`;
  range.style.width = `${right - left}px`;
}

function endDrag() {
  drag?.area.querySelector(".range")?.remove();
  drag = null;
}

/** Open this page with the time of the steps between two places. */
function zoom(area, from, to) {
  const data = tableOf(area.closest(".chart"));
  if (!data || data.rows.length < 2) return;
  const [first, last] = [from, to].sort((a, b) => a - b).map((x) => stepAt(area, x, data.rows.length));
  const at = (index) => Date.parse(data.rows[index].querySelector("time").dateTime) / 1000;
  const params = new URLSearchParams(location.search);
  params.delete("span");
  params.set("from", at(first));
  params.set("to", at(last) + at(1) - at(0));
  location.assign(`?${params}`);
}

document.addEventListener("pointerdown", (event) => {
  const area = event.target.closest?.(".chart .area");
  if (!area || event.button !== 0 || event.pointerType === "touch") return;
  event.preventDefault(); // selects no text
  drag = { area, x: event.clientX };
});
document.addEventListener("pointermove", (event) => {
  if (drag) placeRange(event);
});
document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { area, x } = drag;
  endDrag();
  if (Math.abs(event.clientX - x) >= LEAST_PX) zoom(area, x, event.clientX);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") endDrag();
});
