// Keys: / search, j and k move through rows, Enter opens, x selects, g and a letter goes to a page, q leaves.

const help = document.querySelector("[data-help]");
let going = false;

const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.offsetParent && !row.closest("details"));

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.hasAttribute("data-chosen"));
  all[at]?.removeAttribute("data-chosen");
  const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
  next.setAttribute("data-chosen", "");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a") ?? next.querySelector("button, input"))?.focus({ preventScroll: true });
}

/** Tick or untick the row. */
const select = () => document.querySelector("tr[data-chosen] .tick input")?.click();

function go(key) {
  going = false;
  for (const entry of document.querySelectorAll(".top nav a[data-key]")) {
    if (entry.dataset.key === key) location.assign(entry.getAttribute("href"));
  }
}

/** Up one level: the last crumb, or the overview. */
function leave() {
  const crumbs = document.querySelectorAll(".crumbs a");
  location.assign(crumbs.length ? crumbs[crumbs.length - 1].getAttribute("href") : "./");
}

function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const pages = [...document.querySelectorAll(".top nav a[data-key]")].map((entry) => [`g ${entry.dataset.key}`, entry.textContent]);
  const ticks = document.querySelector(".tick") ? [["x", "Select the row"], ["Esc", "Select no row"]] : [];
  const keys = [["/", "Search"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ...ticks, ...pages, ["q", "Up one level"], ["?", "These keys"]];
  const dialog = document.createElement("dialog");
  const title = document.createElement("h2");
  title.textContent = "Keys";
  const list = document.createElement("dl");
  for (const [key, meaning] of keys) {
    const term = document.createElement("dt");
    for (const each of key.split(/\s+/)) {
      const cap = document.createElement("kbd");
      cap.textContent = each;
      term.append(cap, " ");
    }
    const text = document.createElement("dd");
    text.textContent = meaning;
    list.append(term, text);
  }
  dialog.append(title, list);
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const ACTIONS = {
  "/": () => document.querySelector(".search input").focus(),
  "?": showHelp,
  j: () => move(1),
  k: () => move(-1),
  x: select,
  q: leave,
  g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches?.("input")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]")) return;
  const action = going ? () => go(event.key) : ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// On a narrow screen the navigation scrolls: show where we are.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
help.hidden = false;
help.addEventListener("click", showHelp);
