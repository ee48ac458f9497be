(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 52rem)");
  let turn = 0;
  if (narrow.matches) {
    document.querySelectorAll(".meanings").forEach((words) => words.removeAttribute("open"));
  }

  // A chart names colours by role; here they become those of the theme.
  const coloured = (spec, palette) =>
    JSON.parse(JSON.stringify(spec), (key, value) => (typeof value === "string" && value in palette ? palette[value] : value));

  const chosen = (view) =>
    Object.fromEntries(Object.entries(view.getState().signals).filter(([name]) => name.startsWith("choose_") || name === "front_only"));

  async function draw(place, theme) {
    const { spec, renderer } = figures[place.dataset.figure];
    const filters = place.parentElement.querySelector(".filters");
    const kept = place.view ? chosen(place.view) : {};
    if (place.view) {
      place.view.finalize();
    }
    filters.replaceChildren();
    const config = structuredClone(theme.config);
    const named = spec.usermeta?.legendColumn;
    config.legend.columns = named ? Math.max(1, Math.floor(place.clientWidth / named)) : place.clientWidth < 480 ? 2 : 5;
    config.axisY = { ...config.axisY, labelLimit: place.clientWidth < 480 ? 90 : 220 };
    const drawn = await vegaEmbed(place.firstElementChild, coloured(spec, theme.palette), {
      actions: false,
      bind: filters,
      config,
      defaultStyle: false,
      renderer,
      tooltip: { disableDefaultStyle: true, theme: "page" },
    });
    for (const [name, value] of Object.entries(kept)) {
      drawn.view.signal(name, value);
    }
    await drawn.view.runAsync();
    place.view = drawn.view;
    place.dispatchEvent(new CustomEvent("drawn"));
  }

  async function drawAll() {
    const mine = ++turn;
    const name = dark.matches ? "dark" : "light";
    delete document.documentElement.dataset.drawn;
    for (const place of document.querySelectorAll(".chart")) {
      if (mine !== turn) {
        return;
      }
      await draw(place, themes[name]);
    }
    document.documentElement.dataset.drawn = name;
  }

  let queue = drawAll();
  const again = () => {
    turn += 1;
    queue = queue.then(drawAll);
  };
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
})();
