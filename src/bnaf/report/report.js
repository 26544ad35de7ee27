"use strict";
// Headers of tables become buttons that sort; without this script the tables stay as they are.
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const status = document.getElementById("sorted");
  const keyOf = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "string" || typeof b === "string") {
      return String(a).localeCompare(String(b), undefined, { numeric: true });
    }
    return a - b;
  };
  const isMissing = (key) => typeof key === "number" && Number.isNaN(key);
  headers.forEach((header, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [keyOf(row, index), row]);
      rows.sort(([a], [b]) => {
        if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
        return direction * compare(a, b);
      });
      body.append(...rows.map(([, row]) => row));
      const way = direction === 1 ? "rising" : "falling";
      status.textContent = `Sorted by ${button.textContent.trim()}, ${way}.`;
    });
  });
}
