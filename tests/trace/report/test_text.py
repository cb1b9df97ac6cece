"""Text and Markdown: every term is there, what is missing says so, tables are well formed."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from trace import Sample, diagnose
from trace.report.text import promise, term_rows, to_markdown, to_text
from trace.report.words import drawn_form


def linear(scales):
    model = nn.Linear(2, 2, bias=False)
    model.weight.data.copy_(torch.diag(torch.tensor(scales)))
    return model


@pytest.fixture(scope="module")
def samples():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g)
    y = (x[:, 0] > 0).long()
    x_new = torch.randn(60, 2, generator=g) + 1.0
    return (
        (linear([2.0, 2.0]), linear([2.0, -1.0])),
        Sample(x, y),
        Sample(x_new, (x_new[:, 0] > 1).long()),
    )


@pytest.fixture(scope="module")
def full(samples):
    models, source, target = samples
    g = torch.Generator().manual_seed(1)
    x, x_new = torch.randn(30, 2, generator=g), torch.randn(30, 2, generator=g) + 1.0
    val, new_val = Sample(x, (x[:, 0] > 0).long()), Sample(x_new, (x_new[:, 0] > 1).long())
    return diagnose(*models, source, target, source_val=val, target_val=new_val, anchor_test=val)


@pytest.fixture(scope="module")
def partial(samples):
    models, source, target = samples
    return diagnose(*models, source, Sample(target.x))


def test_without_gradients_the_form_is_mmd(samples):
    (old, new), source, target = samples
    val, new_val = (Sample(s.x[:30], s.y[:30]) for s in (source, target))
    far = Sample(target.x + 8, target.y)
    d = diagnose(lambda x: old(x).detach(), lambda x: new(x).detach(), source, far, source_val=val, target_val=new_val)
    assert math.isnan(d.bound_core("ot"))
    header, *rows = term_rows(d)
    assert header[-1] == "share (mmd)"
    assert [row[-1] for row in rows[:4]] == [f"{share:.0%}" for share in d.attribution("mmd").values()]
    assert promise(d) == ""
    no_gaps = diagnose(lambda x: old(x).detach(), lambda x: new(x).detach(), source, far)
    assert (math.isnan(no_gaps.bound_core("mmd")), drawn_form(no_gaps)) == (True, "mmd")


def test_the_promise_names_the_forms_that_exist(full):
    assert promise(full).startswith("The full bound (ot, hybrid) fails")
    hybrid = dataclasses.replace(full, emp_shift_ot=math.nan)
    assert promise(hybrid).startswith("The full bound (hybrid) fails")
    assert "the W1 constants are right" not in promise(hybrid)
    transport = dataclasses.replace(full, emp_shift_hybrid=math.nan)
    assert promise(transport).startswith("The full bound (ot) fails")
    assert "RKHS" not in promise(transport)
    assert promise(dataclasses.replace(full, label_noise=math.nan)) == ""


@pytest.mark.parametrize("render", [to_text, to_markdown])
def test_says_everything(render, full):
    page = render(full)
    for words in ("model change", "covariate-shift penalty", "label noise", "worst label", "True change on the anchor"):
        assert words in page
    for value in (full.model_change, full.bound_core(), full.bound_full("hybrid"), full.evidence.anchor.plug_in.value):
        assert f"{value:.4g}" in page
    assert "fails with probability at most 0.1 (label noise 0.025, population 0.025" in page
    assert "the Sinkhorn divergence is at least W1" in page
    assert "not available" not in page.lower()
    assert page == page.strip()


@pytest.mark.parametrize("render", [to_text, to_markdown])
def test_says_what_is_missing(render, partial):
    page = render(partial)
    assert "True change" not in page
    assert "fails with probability" not in page
    assert "needs labels on the target" in page
    assert "target sensitivity from pseudo-labels" in page
    assert "n/a" in page
    assert "nan" not in page.lower()


def test_markdown_tables_are_rectangular(full, partial):
    for page in (to_markdown(full), to_markdown(partial)):
        for block in page.split("\n\n"):
            if block.startswith("|"):
                widths = {line.replace("\\|", "").count("|") for line in block.splitlines()}
                assert len(widths) == 1


def test_text_columns_line_up(full):
    rows = [line for line in to_text(full).splitlines() if line.startswith("  ")]
    header = next(line for line in rows if line.split()[0] == "term")
    column = header.index("ot")
    for line in rows[1:5]:
        assert line[column - 1] == " "
        assert line[column] != " "
