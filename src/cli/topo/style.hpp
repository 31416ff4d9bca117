// The page's style sheet.
#pragma once

namespace treering::topo_view {

inline constexpr const char* kStyle = R"css(
:root {
  color-scheme: light dark;
  --ground: light-dark(#f3f5f8, #12161c); --paper: light-dark(#ffffff, #1d232c);
  --edge: light-dark(#d5dbe3, #343d4a); --ink: light-dark(#1b2430, #e8edf3);
  --soft: light-dark(#5b6878, #9aa7b8);
  --gpu: light-dark(#d3f0e2, #15503a); --nic: light-dark(#d6e8f9, #173f63);
  --numa: light-dark(#e9e2f7, #3b2f5c); --cpu: light-dark(#f1ecfa, #2c2640);
  --switch: light-dark(#fbe9d0, #57401c);
  --arc: light-dark(#0b7a4b, #4fd09a); --bad: light-dark(#b3261e, #ff8a80);
  --warn: light-dark(#8a5a00, #f0b54a);
}
body {
  margin: 0 auto; max-width: 1700px; padding: 16px 20px 40px; background: var(--ground);
  color: var(--ink); font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif;
}
h1 { margin: 0; font-size: 21px; }
h2 { margin: 0 0 4px; font-size: 16px; }
p { margin: 0 0 10px; color: var(--soft); font-size: 14px; }
section {
  background: var(--paper); border: 1px solid var(--edge); border-radius: 14px;
  padding: 14px 18px; margin-top: 14px;
}
.wide { overflow-x: auto; }
svg { display: block; }
rect { fill: var(--paper); stroke: var(--edge); stroke-width: 1.3; }
.gpu rect { fill: var(--gpu); } .nic rect { fill: var(--nic); }
.numa rect { fill: var(--numa); } .cpu rect { fill: var(--cpu); }
.switch rect { fill: var(--switch); }
.unused rect { stroke-dasharray: 4 3; } .unused text { opacity: .6; }
text { fill: var(--ink); font-family: inherit; }
.name { font-size: 13.5px; font-weight: 600; }
.detail { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
path { fill: none; stroke-linecap: round; }
.edge { stroke: var(--soft); stroke-opacity: .55; }
.edge.assumed { stroke-dasharray: 7 6; stroke-linecap: butt; }
.arc { stroke: var(--arc); stroke-opacity: .5; }
.arc:hover { stroke-opacity: 1; }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; }
th { font-weight: 600; padding: 3px 7px; text-align: left; white-space: nowrap; }
td { padding: 3px 7px; text-align: center; border: 1px solid var(--edge); line-height: 1.25; }
td:first-child { border: 0; }
td.left { text-align: left; white-space: nowrap; }
.circles { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 4px 0 12px; }
.ringway { stroke: var(--arc); stroke-width: 2.4; } .ringway.far { stroke: var(--warn); stroke-dasharray: 6 5; }
.member { fill: var(--gpu); stroke: var(--ink); }
td.NV { background: var(--gpu); } td.C2C, td.PIX { background: light-dark(#dff0ff, #173f63); }
td.PXB { background: light-dark(#edf2fb, #22324a); } td.PHB { background: light-dark(#f4f1fb, #2c2640); }
td.NODE { background: light-dark(#fbf2e3, #3d3019); } td.SYS { background: light-dark(#fbe3df, #4c2320); }
td.NET { background: light-dark(#f6ebd8, #4a3a1a); } td.X { color: var(--soft); }
td.guess { font-style: italic; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 7px; }
li { display: grid; grid-template-columns: 96px 1fr; gap: 12px; }
li b { font-size: 13px; } li i { font-style: normal; font-weight: 600; }
b.defect { color: var(--bad); } b.assumption { color: var(--warn); } b.note { color: var(--soft); }
)css";

}  // namespace treering::topo_view
