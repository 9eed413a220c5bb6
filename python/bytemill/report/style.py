"""The style sheet of the pages: light and dark, from the width of a phone on."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #1d1f24; --muted: #5c6270; --line: #dedcd6; --grid: #e9e7e2;
  --c1: #2563c9; --c2: #c2570c; --c3: #2f7d4f; --c4: #8247b8; --c5: #a8750a; --c6: #b03060; --c7: #4b6a88;
  --rest: #b4b7be; --link: #2563c9;
  --t1: #cfe2ff; --t2: #d3f2d5; --t3: #ffe2c2; --t4: #f6d5f0; --t5: #fbf0b2; --special: #454078;
  --special-ink: #fff;
  --mono: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans",
  sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161a; --card: #1c1f25; --ink: #e7e8ea; --muted: #a2a8b4; --line: #343943; --grid: #2a2e37;
    --c1: #6ea8ff; --c2: #f0914a; --c3: #63bd86; --c4: #bd8ce6; --c5: #d9ab4a; --c6: #e47a9c; --c7: #8fb0cf;
    --rest: #666c78; --link: #8ab8ff;
    --t1: #1f4170; --t2: #1f4d2e; --t3: #5e3c17; --t4: #532a52; --t5: #504711; --special: #b9b3f5;
    --special-ink: #17152e;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 54rem; padding: 2.5rem 1.25rem 5rem; background: var(--page);
  color: var(--ink);
  font: 1rem/1.6 var(--sans); }
header { margin-bottom: 2rem; }
h1 { margin: 0 0 .5rem; font-size: clamp(1.6rem, 5vw, 2.2rem); line-height: 1.2; letter-spacing: -.015em; }
h2 { margin: 0 0 .5rem; font-size: 1.3rem; line-height: 1.3; letter-spacing: -.01em; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1rem; }
p { margin: .5rem 0 1rem; max-width: 44rem; }
.lead { color: var(--muted); font-size: 1.08rem; }
a { color: var(--link); }
section { margin: 1.25rem 0; padding: 1.5rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; }
code, pre, .mono { font-family: var(--mono); font-size: .9em; }
pre.written { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .9rem 1rem; overflow-x: auto; background: var(--page);
  border: 1px solid var(--line); border-radius: .5rem; line-height: 1.7; }

.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 0; }
.tiles > div { display: flex; flex-direction: column-reverse; justify-content: flex-end; padding: .8rem 1rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem; }
.tiles dd { margin: 0 0 .15rem; font-size: 1.55rem; font-weight: 650; line-height: 1.3;
  letter-spacing: -.02em; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tiles dt { color: var(--muted); font-size: .85rem; line-height: 1.4; }

figure { margin: 1rem 0 .5rem; }
figcaption { margin-top: .5rem; color: var(--muted); font-size: .9rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-family: var(--sans);
  font-variant-numeric: tabular-nums; }
svg.narrow { display: none; max-width: 30rem; }
@media (max-width: 40rem) { svg.wide { display: none; } svg.narrow { display: block; } }
svg text { fill: var(--ink); font-size: 13px; }
svg .small { fill: var(--muted); font-size: 12px; }
svg .strong { font-weight: 650; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .gap { stroke: var(--card); stroke-width: 1.5; }
.f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); }
.f5 { fill: var(--c5); } .f6 { fill: var(--c6); } .f7 { fill: var(--c7); } .f0 { fill: var(--rest); }
.s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-dasharray: 6 5; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .25rem 0 .6rem; padding: 0;
  list-style: none;
  font-size: .9rem; }
.legend svg { display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  vertical-align: -.02em; }

details { margin-top: .6rem; }
summary { width: max-content; color: var(--link); font-size: .9rem; cursor: pointer; }
.scroll { overflow-x: auto; }
table { width: 100%; margin: .5rem 0; border-collapse: collapse; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { padding: .25rem 0 .5rem; color: var(--muted); text-align: left; }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--muted); font-weight: 500; }
.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }

.tokens { margin: .5rem 0; padding: .9rem 1rem; border: 1px solid var(--line); border-radius: .5rem;
  font-family: var(--mono); font-size: .92rem; line-height: 2; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.token { padding: .12em 0; border-radius: .2em; color: var(--ink); }
.k1 { background: var(--t1); } .k2 { background: var(--t2); } .k3 { background: var(--t3); }
.k4 { background: var(--t4); } .k5 { background: var(--t5); }
.token.special { background: var(--special); color: var(--special-ink); font-weight: 600; }
.token i { font-style: normal; font-size: .8em; white-space: nowrap; opacity: .75; }
.tokens .token { cursor: default; }
.tokens .token:hover, .tokens .token:focus { outline: 2px solid var(--ink); outline-offset: 1px; }
.tokens .token:hover::after, .tokens .token:focus::after { content: attr(data-about); position: fixed;
  z-index: 1;
  left: 50%; bottom: 1rem; transform: translateX(-50%); padding: .5rem .9rem; border-radius: .5rem;
  background: var(--ink); color: var(--page); font: 500 .9rem/1.3 var(--sans); white-space: nowrap; }
.tokens .token:hover::after { z-index: 2; }
.token sub { display: none; margin: 0 .35em 0 .15em; color: var(--muted); font: .7rem/1 var(--sans);
  vertical-align: -.35em; }
.show-ids { display: inline-flex; gap: .45em; align-items: center; margin: .25rem 0; font-size: .9rem;
  cursor: pointer; }
.show-ids:has(:checked) ~ .tokens sub, .show-ids:has(:checked) + .tokens sub { display: inline; }
.skip { position: absolute; left: -999rem; }
.skip:focus { position: static; display: inline-block; margin: .25rem 0; }
.chips { display: flex; flex-wrap: wrap; gap: .4rem; margin: .5rem 0; padding: 0; list-style: none;
  font-family: var(--mono); font-size: .88rem; }
.chips li { padding: .1rem .5rem; background: var(--page); border: 1px solid var(--line);
  border-radius: .4rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.chips small { margin-left: .5em; color: var(--muted); font-family: var(--sans); }
.merges { columns: 15rem; margin: .5rem 0; padding-left: 2.6rem; font-family: var(--mono);
  font-size: .88rem; }
.merges li { break-inside: avoid; padding-left: .2rem; }
.merges li::marker { color: var(--muted); font-family: var(--sans); font-size: .85em; }
.merges b { font-weight: 650; }
.merges small { margin-left: .6em; color: var(--muted); font-family: var(--sans); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
@media (max-width: 40rem) { body { padding: 1.5rem .75rem 4rem; } section { padding: 1.1rem .9rem; } }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""
