// Follows a page: swaps regions that the server sends, and keeps focus, selection and scroll.

const link = document.body.dataset.liveLink;
const pulse = document.querySelector("[data-pulse]");
const away = document.querySelector("[data-away]");
const KEPT = new Set(["open", "data-chosen", "data-kept"]); // what the visitor did, and the server knows nothing of

/** Make `old` like `fresh` with as few changes as possible. */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
  morphAttributes(old, fresh);
  if (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA" || old.nodeName === "SELECT") return;
  morphChildren(old, fresh);
}

function morphAttributes(old, fresh) {
  const typed = old.nodeName === "INPUT" && old.type !== "hidden";
  for (const { name, value } of fresh.attributes) {
    if (KEPT.has(name) || (typed && (name === "value" || name === "checked"))) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
}

function morphChildren(old, fresh) {
  const byKey = new Map();
  for (const child of old.children) if (keyOf(child)) byKey.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const known = byKey.get(keyOf(wanted));
    if (known && known !== place) old.insertBefore(known, place);
    const found = known ?? (place && !keyOf(place) ? place : null);
    if (!found) {
      old.insertBefore(wanted, place);
      continue;
    }
    place = found.nextSibling;
    morph(found, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    if (!place.dataset?.kept) place.remove();
    place = next;
  }
}

const keyOf = (node) => node.id || node.dataset?.row || null;

/** Show instants in the visitor's time zone. */
export function localise(root) {
  for (const time of root.querySelectorAll("time[data-time]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = FORMATS[time.dataset.time].format(at);
    if (time.dataset.time !== "full") time.title = FORMATS.full.format(at);
  }
}

const FORMATS = {
  full: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }),
  clock: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  day: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" }),
};

const held = new Map(); // what came for regions that are held, by name

function swap({ name, html }) {
  const region = document.querySelector(`[data-live="${CSS.escape(name)}"]`);
  if (!region) return;
  if (isHeld(region)) {
    held.set(name, html);
    return;
  }
  held.delete(name);
  const fresh = region.cloneNode(false);
  fresh.innerHTML = html;
  morph(region, fresh);
  localise(region);
  document.dispatchEvent(new CustomEvent("tampu:changed", { detail: region }));
}

/** Whether somebody marks text or rows in there: they must not change under their hands. */
function isHeld(region) {
  if (region.querySelector("tbody .tick input:checked")) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && region.contains(selection.anchorNode));
}

function catchUp() {
  for (const [name, html] of [...held]) swap({ name, html });
}

document.addEventListener("selectionchange", catchUp);
document.addEventListener("tampu:released", catchUp);

function tell(sentence) {
  away.textContent = sentence;
  away.hidden = !sentence;
  pulse?.classList.toggle("lost", Boolean(sentence));
}

function follow() {
  const stream = new EventSource(link);
  let lost = 0;
  stream.addEventListener("open", () => {
    clearTimeout(lost);
    lost = 0;
    tell("");
    pulse.hidden = false;
  });
  stream.addEventListener("region", (event) => swap(JSON.parse(event.data)));
  stream.addEventListener("away", (event) => tell(`${JSON.parse(event.data).sentence} Trying again.`));
  stream.addEventListener("back", () => tell(""));
  stream.addEventListener("gone", (event) => tell(JSON.parse(event.data).sentence));
  stream.addEventListener("error", () => {
    // A stream ends now and then by design: only a gap that lasts is worth a word.
    lost ||= setTimeout(() => tell("The dashboard does not answer. Trying again."), 4000);
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
  addEventListener("pagehide", () => stream.close(), { once: true });
}

localise(document);
if (link) follow();
