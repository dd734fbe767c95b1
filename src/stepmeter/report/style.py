"""The style of the HTML report: one set of colours for light, one for dark, distinguishable without red and green."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--bg:#fff;--card:#f6f7f9;--text:#1b1f24;--dim:#5b6470;--line:#d9dde3;--info:#1a7f4b;--warn:#8a5a00;--crit:#b3261e;
--p0:#d55e00;--p1:#cc79a7;--p2:#0072b2;--p3:#56b4e9;--p4:#009e73;--p5:#9aa3ad;--median:#0072b2;--worst:#d55e00}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1d2126;--text:#e8eaed;--dim:#a3acb7;--line:#363c44;
--info:#5fd39a;--warn:#f2b84b;--crit:#ff8a80;--p0:#ff8a3d;--p1:#e39cc4;--p2:#4fa8e0;--p3:#9ad4f5;--p4:#3fc79a;
--p5:#7d8792;--median:#6bb8ef;--worst:#ff8a3d}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem}
header{border-left:.4rem solid var(--line);background:var(--card);padding:1rem 1.25rem;border-radius:.4rem}
header.info{border-color:var(--info)}header.warn{border-color:var(--warn)}header.crit{border-color:var(--crit)}
h1{font-size:1.6rem;margin:.1rem 0 .5rem;line-height:1.25}h2{font-size:1.1rem;margin:2rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .3rem}p{margin:.35rem 0}.run{color:var(--dim);font-weight:600}
.dim,footer{color:var(--dim);font-size:.875rem}
footer{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:.6rem}
.chip{display:inline-block;font-size:.75rem;font-weight:600;padding:.1rem .5rem;border-radius:1rem;border:1px solid;
vertical-align:middle}.chip.info{color:var(--info)}.chip.warn{color:var(--warn)}.chip.crit{color:var(--crit)}
article{background:var(--card);border-radius:.4rem;padding:.75rem 1rem;margin:.6rem 0}
.bar{display:flex;height:1.5rem;border-radius:.25rem;overflow:hidden;background:var(--line)}
.bar i{display:block;height:100%}
td .bar{height:1rem;min-width:8rem}
.p0{background:var(--p0)}.p1{background:var(--p1)}.p2{background:var(--p2)}.p3{background:var(--p3)}
.p4{background:var(--p4)}.p5{background:var(--p5)}
.swatch{display:inline-block;width:.75rem;height:.75rem;border-radius:.15rem;margin-right:.45rem}
.key{display:inline-block;width:1.2rem;height:.2rem;margin:0 .2rem .25rem .8rem;vertical-align:middle}
.key.median{background:var(--median);margin-left:0}.key.worst{background:var(--worst)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;margin-top:.6rem}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--dim);font-size:.875rem}th:first-child,td:first-child{text-align:left;padding-left:0}
table.words td,table.words th{text-align:left}table.words td:last-child{white-space:normal}
table.numbers td:last-child,table.numbers th:last-child{text-align:left}
table.ranks td:nth-child(2),table.ranks th:nth-child(2){text-align:left}
table.ranks td:last-child{width:60%}table.ranks th:last-child{text-align:left}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.grid{stroke:var(--line);stroke-width:1}polyline{fill:none;stroke-width:1.5;stroke-linejoin:round}
polyline.median{stroke:var(--median)}polyline.worst{stroke:var(--worst);opacity:.8}
@media (max-width:40rem){svg text{font-size:17px}table.words thead{display:none}
table.words tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}
table.words td{display:inline-block;border:0;padding:.1rem .6rem .1rem 0}table.words td:last-child{display:block}}
@media print{body{font-size:12px}header,article{border:1px solid var(--line)}}
"""
