"use strict";
// Tables are sorted by a click on a heading; charts can be saved. Without scripts the page is complete.

function sortKey(row, column) {
  const text = row.cells[column] ? row.cells[column].textContent : "";
  const number = parseFloat(text.replace(/[,\u2009★* ]/g, "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
}

function compareKeys(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function makeSortable(table) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((heading, column) => {
    const sort = () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => compareKeys(sortKey(a, column), sortKey(b, column)));
      body.append(...(ascending ? rows : rows.reverse()));
    };
    heading.tabIndex = 0;
    heading.title = "Sort by this column";
    heading.classList.add("sortable");
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sort();
    });
  });
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size",
  "font-weight", "text-anchor"];

function standalone(svg) {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, index) => {
    const computed = getComputedStyle(originals[index]);
    STYLES.forEach((name) => element.setAttribute(name, computed.getPropertyValue(name)));
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const background = document.createElementNS(svg.namespaceURI, "rect");
  background.setAttribute("width", "100%");
  background.setAttribute("height", "100%");
  background.setAttribute("fill", getComputedStyle(svg.closest("section") || document.body).backgroundColor);
  copy.prepend(background);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePicture(svg, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.width;
    canvas.height = 2 * image.height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name));
    URL.revokeObjectURL(image.src);
  };
  image.src = URL.createObjectURL(standalone(svg));
}

function makeSavable(figure) {
  const drawings = [...figure.querySelectorAll(":scope > svg")];
  if (!drawings.length) return;
  const shown = () => drawings.find((svg) => getComputedStyle(svg).display !== "none") || drawings[0];
  const name = drawings[0].getAttribute("aria-labelledby").split("-" + drawings[0].classList[0])[0];
  const buttons = document.createElement("p");
  buttons.className = "save";
  [["SVG", () => save(standalone(shown()), name + ".svg")], ["PNG", () => savePicture(shown(), name + ".png")]]
    .forEach(([label, action]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Save as " + label;
      button.addEventListener("click", action);
      buttons.append(button);
    });
  figure.append(buttons);
}

document.querySelectorAll("table").forEach(makeSortable);
document.querySelectorAll("figure").forEach(makeSavable);
