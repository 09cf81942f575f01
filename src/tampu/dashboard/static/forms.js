// Sends forms without leaving the page, asks before what cannot be undone, and shows the outcome.

const toasts = document.querySelector("[data-toasts]");

/** Show a sentence for some seconds. */
export function toast(sentence, { bad = false } = {}) {
  const element = document.createElement("div");
  element.className = bad ? "toast bad" : "toast";
  element.textContent = sentence;
  toasts.append(element);
  setTimeout(() => element.remove(), bad ? 10000 : 5000);
}

/** Ask a question; true if the answer is yes. */
export function ask(question, yes) {
  const dialog = document.createElement("dialog");
  const text = document.createElement("p");
  text.textContent = question;
  const form = document.createElement("form");
  form.method = "dialog";
  form.className = "tools";
  for (const [label, value, tone] of [["Cancel", "", ""], [yes, "yes", "main"]]) {
    const button = document.createElement("button");
    Object.assign(button, { textContent: label, value, className: tone });
    form.append(button);
  }
  dialog.append(text, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
  });
}

async function send(form, fields) {
  const response = await fetch(form.getAttribute("action"), {
    method: "POST",
    body: fields,
    headers: { accept: "application/json" },
  });
  const answer = await response.json();
  toast(answer.sentence, { bad: !response.ok });
  if (response.ok && form.id === "selected") tickAll(false);
  if (answer.go) location.assign(answer.go);
  else if (response.ok && !document.body.dataset.liveLink) location.reload();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-send]")) return;
  event.preventDefault();
  const button = event.submitter;
  if (form.dataset.ask && !(await ask(form.dataset.ask, button?.textContent ?? "Yes"))) return;
  const fields = new URLSearchParams(new FormData(form, button)); // a disabled button sends nothing
  if (button) button.disabled = true;
  try {
    await send(form, fields);
  } catch {
    toast("The dashboard did not answer. It is not known whether this was done.", { bad: true });
  } finally {
    if (button) button.disabled = false;
  }
});

// Rows are selected with the boxes before them; the box in the head of the table is for all of them.

const boxes = () => [...document.querySelectorAll("tbody .tick input")];

function showSelected() {
  const all = boxes();
  const ticked = all.filter((box) => box.checked).length;
  for (const each of document.querySelectorAll("[data-selected]")) each.textContent = ticked;
  for (const head of document.querySelectorAll("[data-tick-all]")) {
    head.checked = ticked > 0 && ticked === all.length;
    head.indeterminate = ticked > 0 && ticked < all.length;
  }
  document.dispatchEvent(new CustomEvent("tampu:released")); // perhaps: who waits for it looks
}

function tickAll(checked) {
  for (const box of boxes()) box.checked = checked;
  showSelected();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-tick-all]")) tickAll(event.target.checked);
  else if (event.target.matches(".tick input")) showSelected();
});
document.addEventListener("tampu:changed", showSelected);
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && !typing && !document.querySelector("dialog[open]")) tickAll(false);
});
addEventListener("pageshow", showSelected);
