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

async function send(form, button) {
  const fields = new URLSearchParams(new FormData(form, button));
  const response = await fetch(form.getAttribute("action"), {
    method: "POST",
    body: fields,
    headers: { accept: "application/json" },
  });
  const answer = await response.json();
  toast(answer.sentence, { bad: !response.ok });
  if (answer.go) location.assign(answer.go);
  else if (response.ok && !document.body.dataset.liveLink) location.reload();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-send]")) return;
  event.preventDefault();
  const button = event.submitter;
  if (form.dataset.ask && !(await ask(form.dataset.ask, button?.textContent ?? "Yes"))) return;
  if (button) button.disabled = true;
  try {
    await send(form, button);
  } catch {
    toast("The dashboard did not answer. It is not known whether this was done.", { bad: true });
  } finally {
    if (button) button.disabled = false;
  }
});

// A tick in the head of a table ticks all of its rows.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-tick-all]")) return;
  const table = event.target.closest("table");
  for (const box of table.querySelectorAll("tbody input[type=checkbox]")) box.checked = event.target.checked;
});
