(() => {
  "use strict";
  const scales = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  const number = /^<?([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\D*?)(?:\s*\(.*\))?$/i;
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const next = { none: "ascending", ascending: "descending", descending: "none" };

  // A cell's number with its unit, NaN of words.
  const amount = (text) => {
    const found = number.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) * (scales[found[2]] ?? 1) : NaN;
  };
  const isEmpty = (text) => text === "" || text === "-";

  // Rows by a column: numbers by size, then words; empty cells stay last either way.
  function sorted(rows, column, direction) {
    const cells = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
    const filled = rows.filter((row) => !isEmpty(cells.get(row)));
    const before = (one, two) => {
      const [first, second] = [one, two].map((row) => amount(cells.get(row)));
      if (Number.isNaN(first) && Number.isNaN(second)) return words.compare(cells.get(one), cells.get(two));
      return Number.isNaN(first) ? 1 : Number.isNaN(second) ? -1 : first - second;
    };
    const sign = direction === "ascending" ? 1 : -1;
    return [...filled.sort((one, two) => sign * before(one, two)), ...rows.filter((row) => isEmpty(cells.get(row)))];
  }

  for (const table of document.querySelectorAll("table.sorts")) {
    const body = table.tBodies[0];
    const given = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    for (const [column, head] of heads.entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.title = `Sort by ${head.textContent}`;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const direction = next[head.getAttribute("aria-sort") ?? "none"];
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        if (direction !== "none") {
          head.setAttribute("aria-sort", direction);
        }
        body.replaceChildren(...(direction === "none" ? given : sorted(given, column, direction)));
      });
    }
  }

  // On paper nothing can be unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((each) => each.setAttribute("open", ""));
  });
  addEventListener("afterprint", () => folded.forEach((each) => each.removeAttribute("open")));
})();
