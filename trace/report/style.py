"""The style sheet of the HTML report: system fonts, light and dark, narrow screens, paper."""

LIGHT = {
    "ink": "#1c2128",
    "soft": "#545d68",
    "paper": "#ffffff",
    "panel": "#f5f7f9",
    "line": "#d3d9e0",
    "term": "#0b66a8",
    "rest": "#c9d6e2",
    "total": "#3b4450",
    "source": "#0067a5",
    "target": "#b84a00",
    "accept": "#11632b",
    "reject": "#a5101f",
    "inconclusive": "#7a4b00",
    "accept-panel": "#e9f5ec",
    "reject-panel": "#fbebec",
    "inconclusive-panel": "#fbf3e2",
}
DARK = {
    "ink": "#e4e9ef",
    "soft": "#a3adb9",
    "paper": "#10141a",
    "panel": "#181e26",
    "line": "#353e4a",
    "term": "#5aaee8",
    "rest": "#33475a",
    "total": "#b6c0cb",
    "source": "#62b5ea",
    "target": "#f0a04b",
    "accept": "#6fcf8b",
    "reject": "#ff8f93",
    "inconclusive": "#e8b75a",
    "accept-panel": "#13261a",
    "reject-panel": "#30171a",
    "inconclusive-panel": "#2c2412",
}


def _tokens(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,sans-serif'

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 var(--font)}
main,header.page{max-width:1060px;margin:0 auto;padding:0 20px}
main{padding-bottom:48px}
header.page{padding-top:32px}
h1,h2,h3{line-height:1.25;margin:0;overflow-wrap:anywhere;text-wrap:balance}
h1{font-size:1.75rem}
h2{font-size:1.35rem;margin-top:44px;padding-bottom:6px;border-bottom:1px solid var(--line)}
h3{font-size:1.08rem;margin:30px 0 8px}
p,ul,ol,dl{margin:8px 0;max-width:75ch}
ul,ol{padding-left:1.3em}
li{margin:3px 0;overflow-wrap:anywhere}
.kicker,.note,caption,figcaption{color:var(--soft);font-size:.875rem}
.kicker{margin:0 0 4px;letter-spacing:.04em}
th,td{overflow-wrap:break-word}
.verdict{border-left:6px solid;border-radius:4px;padding:14px 18px;margin:18px 0;break-inside:avoid}
.verdict h2{margin:0;padding:0;border:0}
.verdict p{margin:6px 0}
.accept{border-color:var(--accept);background:var(--accept-panel)}
.reject{border-color:var(--reject);background:var(--reject-panel)}
.inconclusive{border-color:var(--inconclusive);background:var(--inconclusive-panel)}
.headline{border-color:var(--total);background:var(--panel)}
.badge{font-weight:600;white-space:nowrap}
.badge.accept,.badge.reject,.badge.inconclusive{background:none}
.accept .badge,.badge.accept{color:var(--accept)}
.reject .badge,.badge.reject{color:var(--reject)}
.inconclusive .badge,.badge.inconclusive{color:var(--inconclusive)}
.pair{display:grid;grid-template-columns:minmax(0,1fr);gap:8px 32px}
@media (min-width:900px){.pair{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}}
.pair>*{min-width:0}
figure{margin:10px 0;break-inside:avoid}
svg{display:block;width:100%;max-width:490px;height:auto}
figcaption{margin-top:4px;max-width:70ch}
svg text{font:12px var(--font);fill:var(--ink)}
svg .label{paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
.verdict svg{background:var(--paper);border-radius:4px;padding:6px 8px;max-width:520px}
svg .soft{fill:var(--soft)}
svg .strong{font-weight:600}
svg .axis{stroke:var(--soft);stroke-width:1;fill:none}
svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .term{fill:var(--term)}
svg .remainder{fill:var(--rest);stroke:var(--soft)}
svg .total{fill:var(--total)}
svg .missing{fill:none;stroke:var(--soft);stroke-dasharray:4 3}
svg .change{stroke:var(--target);stroke-width:2;stroke-dasharray:6 3;fill:none}
svg .threshold{stroke:var(--ink);stroke-width:2;stroke-dasharray:5 3;fill:none}
svg .span{stroke:var(--ink);stroke-width:3;fill:none}
svg .dot{fill:var(--ink)}
svg .band{fill:var(--ink);opacity:.1}
svg .zone-accept{fill:var(--accept);opacity:.13}
svg .zone-reject{fill:var(--reject);opacity:.13}
svg .source{stroke:var(--source);fill:none;stroke-linecap:round;stroke-width:5.5;opacity:.6}
svg .target{stroke:var(--target);fill:none;stroke-width:1.6;opacity:.8}
svg .harmful{fill:var(--target);stroke:var(--paper)}
svg .harmless{fill:var(--paper);stroke:var(--source);stroke-width:2}
.scroll{overflow-x:auto;margin:10px 0;max-width:100%}
.scroll:focus-visible{outline:2px solid var(--term);outline-offset:2px}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;min-width:min(100%,300px)}
caption{text-align:left;padding:0 0 6px;caption-side:top}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid var(--line);max-width:34ch}
thead th{border-bottom:2px solid var(--soft);white-space:nowrap}
tbody th{font-weight:500;min-width:14ch;overflow-wrap:anywhere}
.long{min-width:26ch;overflow-wrap:anywhere}
.number{text-align:right;white-space:nowrap}
.examples td,.examples th{vertical-align:middle}
.examples img{display:block;width:56px;height:56px;object-fit:contain}
.examples .differs{font-weight:600}
.readings li{margin:0 0 14px}
.readings p{margin:2px 0}
@media (max-width:600px){
main,header.page{padding-left:16px;padding-right:16px}
header.page{padding-top:20px}
h1{font-size:1.4rem}h2{font-size:1.2rem}
.verdict{padding:12px 14px}
table{font-size:.8125rem}
th,td{padding-right:9px}
}
"""

_PRINT = """
@page{size:A4;margin:15mm}
html{font-size:9.5pt}
body{font-size:1rem;-webkit-print-color-adjust:exact;print-color-adjust:exact}
main,header.page{max-width:none;padding:0}
h1,h2,h3,caption,thead{break-after:avoid}
h2{margin-top:18pt}h3{margin-top:14pt}
svg,.verdict svg{max-width:88mm}
.scroll{overflow:visible}
th,td{max-width:none;padding:3pt 7pt 3pt 0}
thead th{white-space:normal}
thead{display:table-header-group}
tbody th{min-width:9ch}
.long{min-width:18ch}
table,tr,li,figure,.verdict,.keep{break-inside:avoid}
.page-break{break-before:page}
.pair{grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:4pt 18pt}
.examples img{width:34px;height:34px}
p,ul,ol,figcaption{max-width:none}
"""

STYLE = (
    f":root{{color-scheme:light dark;--font:{_FONT};{_tokens(LIGHT)}}}\n"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_tokens(DARK)}}}}}\n"
    f"@media print{{:root{{color-scheme:light}}}}{_RULES}@media print{{{_PRINT}}}"
)
"""All rules. Colours of the dark scheme apply to screens only, so paper is always light."""
