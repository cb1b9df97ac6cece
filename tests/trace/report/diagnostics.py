"""Real reports for the tests: digits whose ink fades, and a table without labels, gradients or verdict."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn

from trace import Sample, diagnose
from trace.gate.policy import AnchorVerdict, Verdict
from trace.report.case import AnchorRows
from trace.report.page import report_case, to_html
from trace.stats.conformal import PastUpdate

NASTY = "<script>alert(\"x\")</script> & 'quoted' \x00 \udcff.png"
LONG = "a_name_without_any_space_" * 5


def digits(severity):
    """Images ``[n, 3, 8, 8]`` in [0, 1] that lose their ink."""
    data = load_digits()
    grey = torch.as_tensor(data.images, dtype=torch.float32)[:, None] / 16
    return Sample((grey * (1 - severity)).expand(-1, 3, -1, -1).contiguous(), torch.as_tensor(data.target))


def fit(sample, steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(sample.x), sample.y).backward()
        optimiser.step()
    return model.requires_grad_(True)


def part(sample, rows):
    return Sample(sample.x[rows], sample.y[rows])


def case(anchor, models, source, target, diagnostic, names, **options):
    with torch.no_grad():
        on_source, on_target = (tuple(model(s.x) for model in models) for s in (source, target))
    features = [s.x.flatten(start_dim=1) for s in (source, target)]
    g = torch.Generator().manual_seed(0)
    return report_case(
        anchor, diagnostic, source, target, *features, on_source, on_target, names, generator=g, **options
    )


@cache
def full_cases():
    """Two anchors with everything; one has a name that must not become markup."""
    faded = digits(0.5)
    target, target_val = part(faded, slice(0, 300)), part(faded, slice(300, 500))
    found = []
    for name, severity in (("daylight", 0.0), (NASTY, 0.3)):
        anchor = digits(severity)
        source, val, test = (part(anchor, slice(*ends)) for ends in ((500, 800), (800, 1000), (1000, 1700)))
        models = fit(source, 60), fit(target, 20)
        d = diagnose(
            *models,
            source,
            target,
            source_val=val,
            target_val=target_val,
            anchor_test=test,
            generator=torch.Generator().manual_seed(0),
        )
        names = ([f"digit-{i}.png" for i in range(300)],) * 2
        with torch.no_grad():
            rows = AnchorRows(test, tuple(m(test.x) for m in models), [f"{NASTY}-{LONG}-{i}" for i in range(700)])
        found.append(case(name, models, source, target, d, names, classes=["zero & none", *"123456789"], held_out=rows))
    return found


def verdict():
    anchors = (
        AnchorVerdict(
            f"night_{LONG}", "accept", "anchor_disagreement", 0.02, 0.01, 0.04, 0.1, None, "All of it lies below."
        ),
        AnchorVerdict(NASTY, "inconclusive", "anchor_disagreement", 0.09, 0.05, 0.14, 0.1, 900, "It holds 0.1."),
        AnchorVerdict("daylight", "reject", "anchor_disagreement", 0.2, 0.12, 0.29, 0.1, None, "All of it lies above."),
    )
    return Verdict("reject", anchors, "daylight")


def past():
    return [PastUpdate(f"update {i} <b>", i / 40, i / 40 - 0.12) for i in range(17)] + [
        PastUpdate("unknown", 0.3, float("nan"))
    ]


@cache
def full_report():
    about = {"command": "trace-shift gate --old <old> --new " + LONG, "date": "2026-01-31"}
    return to_html(full_cases(), verdict=verdict(), past=past(), title="Fading <ink>", about=about)


@cache
def bare_cases():
    """No labels, no validation splits, no gradients."""
    g = torch.Generator().manual_seed(1)
    W = torch.randn(4, 3, generator=g)
    source, target = Sample(torch.randn(80, 4, generator=g)), Sample(torch.randn(60, 4, generator=g) + 1)
    models = (lambda x: (x @ W).detach()), (lambda x: (x.relu() @ W).detach())
    d = diagnose(*models, source, target)
    names = tuple([str(i) for i in range(n)] for n in (80, 60))
    return [case("rows", models, source, target, d, names, columns=["a", "b", "c", "d"])]


@cache
def bare_report():
    return to_html(bare_cases(), title="Nothing but inputs", about={})
