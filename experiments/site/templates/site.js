// Filters, sorting and zoom. Without it everything is there to be read, in the order of the paper.
"use strict";

function filterLedger(form) {
  const claims = [...document.querySelectorAll(".part .claim")];
  const texts = new Map(claims.map((claim) => [claim, claim.textContent.toLowerCase()]));
  const fields = ["search", "whose", "verdict", "section"];
  const choices = ["whose", "verdict", "section"];

  function apply() {
    const words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const chosen = choices.every((name) => !form.elements[name].value || claim.dataset[name] === form.elements[name].value);
      claim.hidden = !(chosen && words.every((word) => texts.get(claim).includes(word)));
      shown += !claim.hidden;
    }
    for (const part of document.querySelectorAll(".part")) part.hidden = !part.querySelector(".claim:not([hidden])");
    form.querySelector("output").value = `${shown} of ${claims.length} claims`;
  }

  function remember() {
    const set = fields.filter((name) => form.elements[name].value);
    const hash = set.map((name) => `${name}=${encodeURIComponent(form.elements[name].value)}`).join("&");
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
  }

  function recall() {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) {
      form.reset();
      apply();
      const claim = document.getElementById(hash);
      const more = claim && claim.querySelector("details");
      if (more) more.open = true;
      if (claim) claim.scrollIntoView();
      return;
    }
    const wanted = new URLSearchParams(hash);
    for (const name of fields) form.elements[name].value = wanted.get(name) || "";
    apply();
  }

  form.hidden = false;
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { apply(); remember(); }));
  addEventListener("hashchange", recall);
  recall();
}

function key(cell) {
  const text = cell.textContent.trim().replaceAll("−", "-");
  const number = text.match(/^[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?/i);
  return { text: text.toLowerCase(), number: number ? Number(number[0].replaceAll(",", "")) : NaN };
}

function compare(a, b, numeric) {
  if (!numeric) return a.text.localeCompare(b.text, "en", { numeric: true });
  return a.number - b.number;
}

function makeSortable(table) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[column]) }));
      const numbers = rows.filter((each) => !Number.isNaN(each.key.number)).length;
      const numeric = 2 * numbers >= rows.filter((each) => each.key.text).length;
      const known = rows.filter((each) => each.key.text && !(numeric && Number.isNaN(each.key.number)));
      const unknown = rows.filter((each) => !known.includes(each));
      known.sort((a, b) => sign * compare(a.key, b.key, numeric));
      body.append(...[...known, ...unknown].map((each) => each.row));
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    });
  });
}

function makeZoomable(links) {
  const dialog = document.createElement("dialog");
  dialog.innerHTML = "<p><span></span><button type='button' class='size'>Actual size</button>"
    + "<button type='button' class='close'>Close</button></p><div tabindex='0'><img alt=''></div>";
  document.body.append(dialog);
  const frame = dialog.querySelector("div");
  const size = dialog.querySelector(".size");
  const resize = (actual) => {
    frame.classList.toggle("actual", actual);
    size.textContent = actual ? "Fit" : "Actual size";
  };
  size.addEventListener("click", () => resize(!frame.classList.contains("actual")));
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  for (const link of links) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const image = dialog.querySelector("img");
      image.src = link.href;
      image.alt = link.querySelector("img").alt;
      dialog.querySelector("span").textContent = link.closest("figure").id;
      resize(false);
      dialog.showModal();
    });
  }
}

const filters = document.getElementById("filters");
if (filters) filterLedger(filters);
document.querySelectorAll("table.sortable").forEach(makeSortable);
const zoomable = document.querySelectorAll("a.zoom");
if (zoomable.length) makeZoomable(zoomable);
