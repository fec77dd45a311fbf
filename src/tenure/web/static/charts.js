// Draws the charts of a job over the drawings of the server. Without it those stay, and say the same.
(() => {
  if (typeof uPlot === "undefined") return;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seconds = (value) => value === null || value === undefined ? "–"
    : value >= 86400 ? `${+(value / 86400).toPrecision(3)} d` : value >= 3600 ? `${+(value / 3600).toPrecision(3)} h`
    : value >= 60 ? `${+(value / 60).toPrecision(3)} min` : value >= 1 ? `${+value.toPrecision(3)} s` : `${+(value * 1000).toPrecision(3)} ms`;
  const drawn = [];
  const draw = (place) => {
    const given = JSON.parse(place.dataset.plot);
    const axis = { stroke: colour("--grey"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif" };
    const look = [{ stroke: colour("--link"), width: 1.5 }, { stroke: colour("--warn"), width: 1.5, dash: [5, 3] }];
    const marks = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = colour("--warn");
      ctx.setLineDash([4, 3]);
      for (const mark of given.marks) {
        const x = plot.valToPos(mark.at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      }
      ctx.restore();
    };
    const options = {
      width: place.clientWidth, height: 200, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { y: { distr: 3, log: 10 } },
      axes: [{ ...axis, values: (_plot, ticks, _axis, _space, step) => ticks.map((at) => new Date(at * 1000).toISOString().slice(...(step >= 86400 ? [5, 10] : [11, 16]))) }, { ...axis, size: 76, values: (_plot, ticks) => ticks.map((tick) => tick === null ? "" : seconds(tick)) }],
      series: [{ label: "UTC", value: (_plot, at) => at ? new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ") : "–" },
        ...given.lines.map((line, place) => ({ label: line.word, ...look[place], points: { show: true, size: 4 }, value: (_plot, value) => seconds(value) }))],
      hooks: { draw: [marks] },
    };
    const data = [given.times, ...given.lines.map((line) => line.values.map((value) => value === null ? null : Math.max(value, 0.0001)))];
    place.replaceChildren();
    drawn.push([place, new uPlot(options, data, place)]);
  };
  document.querySelectorAll("[data-plot]").forEach(draw);
  addEventListener("resize", () => { for (const [place, plot] of drawn) plot.setSize({ width: place.clientWidth, height: 200 }); });
})();
