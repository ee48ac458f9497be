(() => {
  "use strict";
  // Beside a server: a click on a point shows its plan, and asks what another would cost. All texts are put in as texts.
  const panel = document.getElementById("plan");
  const { api, point: own } = panel.dataset;
  const [title, words, form, field, answer, link] = ["title", "words", "form", "instead", "answer", "report"].map((name) =>
    document.getElementById(`plan-${name}`),
  );
  const keys = "num_tc num_vc width depth width_vc glb_mib tp pp dp cp ep micro_batch_size recompute zero_stage interleave".split(" ");
  let shown = null;

  const made = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const listed = (sentences) => {
    const list = document.createElement("ul");
    list.append(...sentences.map((sentence) => made("li", sentence)));
    return list;
  };
  function tabled(columns, rows) {
    const table = document.createElement("table");
    const row = (cells, kind) => {
      const line = document.createElement("tr");
      line.append(...cells.map((cell, place) => Object.assign(made(kind, cell), { className: place ? "number" : "" })));
      return line;
    };
    table.createTHead().append(row(columns, "th"));
    table.createTBody().append(...rows.map((cells) => row(cells, "td")));
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(table);
    return scroll;
  }

  async function asked(address, options) {
    try {
      const reply = await fetch(api + address, options);
      const found = await reply.json();
      return reply.ok ? found : { problem: found.problem ?? `the server said ${reply.status}` };
    } catch {
      return { problem: "the server does not answer; is 'phaze serve' still running?" };
    }
  }

  async function show(number, instead) {
    shown = number;
    title.textContent = `Point ${number}`;
    words.replaceChildren(made("p", "…"));
    answer.replaceChildren();
    link.hidden = form.hidden = true;
    if (!panel.open) panel.showModal();
    const found = await asked(`points/${number}/plan`);
    if (shown !== number) return;
    title.textContent = found.title ?? `Point ${number}`;
    words.replaceChildren(found.problem ? made("p", found.problem) : listed(found.sentences));
    form.hidden = !found.can_ask;
    link.hidden = !found.page || Boolean(own);
    link.href = found.page ? api + found.page : "#";
    field.value = instead;
    panel.dataset.shown = number;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const number = shown;
    answer.replaceChildren(made("p", "asking; a search can take a minute …"));
    delete panel.dataset.answered;
    const body = JSON.stringify({ instead: field.value });
    const found = await asked(`points/${number}/explain`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (shown !== number) return;
    const parts = found.problem ? [made("p", found.problem)] : [made("h3", found.title), listed(found.sentences)];
    answer.replaceChildren(...parts, ...(found.rows?.length ? [tabled(found.columns, found.rows)] : []));
    panel.dataset.answered = number;
  });
  document.getElementById("plan-close").addEventListener("click", () => panel.close());
  document.getElementById("plan-open")?.addEventListener("click", () => show(Number(own), ""));

  // A design within a run is asked for by what it is made of.
  const design = (datum) =>
    keys
      .map((key) => [key, datum[key] ?? (key === "micro_batch_size" ? datum.micro_batch : undefined)])
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([key, value]) => `${key}=${value}`)
      .join(",");

  for (const place of document.querySelectorAll(".chart")) {
    place.addEventListener("drawn", () =>
      place.view.addEventListener("click", (event, item) => {
        const datum = item?.datum;
        if (!datum || typeof datum !== "object") return;
        if (!own && Number.isInteger(datum.point)) show(datum.point, "");
        else if (own && design(datum)) show(Number(own), design(datum));
      }),
    );
  }
  for (const each of document.querySelectorAll("a.to-point")) {
    each.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      show(Number(/(\d+)\/$/.exec(each.getAttribute("href"))[1]), "");
    });
  }
})();
