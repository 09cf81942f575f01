// The crosshair and tooltip of charts. The figures come from the table behind the chart.

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

function show(area, event) {
  const data = tableOf(area.closest(".chart"));
  if (!data?.rows.length) return;
  const box = area.getBoundingClientRect();
  const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
  const count = data.rows.length;
  // Lines have a point at both ends; bars and cells fill their part of the width.
  const wide = area.dataset.steps === "points";
  const index = wide ? Math.round(share * (count - 1)) : Math.floor(share * count);
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
