"""The ridge table: golden text from small records, missing parts."""

from experiments.analysis.cells import MISSING
from experiments.tables.ridge import ridge_scaling
from experiments.tables.table import to_latex, to_markdown
from tests.experiments.analysis.ridge_records import record, unmoved

GOLDEN = """\
Ridge regression under a mean shift: log-log slopes in |mu|, unless a row says otherwise. Closed forms: median over 2 \
problems (penalty, dimension, angle) with the widest ends of their 95% intervals; 1 of them have mu orthogonal to w*, \
where nothing changes. Ratios stand at the smallest and at the largest shift, with quartiles. Samples of n = 300: \
median and quartiles over 3 runs. The 0.99-quantile of the gradient stands in for L_x. Agreement is within 0.05 of the \
paper's order. Draws differ from the closed forms by 2.5 standard errors at most.

| quantity | paper | \\|mu\\| <= 0.1 | \\|mu\\| >= 10 | agreement |
| --- | --- | --- | --- | --- |
| shift penalty of the new model, L_x W1 | 1 | 1.000 [0.999, 1.001] | 1.000 [0.999, 1.001] | agrees |
| weight difference, \\|Delta w\\| | 2 | 2.000 [1.999, 2.001] | 1.000 [0.999, 1.001] | agrees |
| model change, E\\|Delta w.x\\| | 2 | 2.000 [1.999, 2.001] | 1.000 [0.999, 1.001] | agrees |
| its Cauchy-Schwarz bound, \\|Delta w\\| E\\|x\\| | 2 | 2.000 [1.999, 2.001] | 1.000 [0.999, 1.001] | agrees |
| E\\|x\\| on the target | 0 | 0.000 [-0.001, 0.001] | 1.000 [0.999, 1.001] | agrees |
| exact COSP | not given | 2.000 [1.999, 2.001] | 1.000 [0.999, 1.001] | - |
| risk change, \\|Delta R\\| | 1 | 2.000 [1.999, 2.001] | 1.000 [0.999, 1.001] | disagrees |
| core bound | 1 | 1.000 [0.999, 1.001] | 1.000 [0.999, 1.001] | agrees |
| core bound over \\|Delta R\\| | 0 | -1.000 [-1.001, -0.999] | 1.000 [0.999, 1.001] | disagrees |
| Delta R below 0 | not given | 2 of 2 points | 1 of 1 points | - |
| Delta R over its limit | not given | 1e-06 [1e-06, 1e-06] | 1 [1, 1] | - |
| core bound over \\|Delta R\\|, size | constant | 2e+03 [2e+03, 2e+03] | 20 [20, 20] | - |
| \\|Delta R\\|, fits to separate samples | not given | 0.000 [0.000, 0.000] | 0.000 [0.000, 0.000] | - |
| \\|Delta R\\|, fits to one sample and its copy moved by mu | not given | 1.000 [1.000, 1.000] | 0.000 [0.000, 0.000] \
| - |
| core bound over \\|Delta R\\|, diagnostic | constant | 100 [100, 100] | 100 [100, 100] | - |
| \\|Delta R\\| <= core bound, diagnostic | holds | 3 of 3 | 3 of 3 | agrees |"""

RECORDS = [record(), record(seed=1), unmoved()]


def test_golden_markdown():
    assert to_markdown(ridge_scaling(RECORDS)) == GOLDEN


def test_latex_has_as_many_cells_in_every_row():
    lines = [line for line in to_latex(ridge_scaling(RECORDS), "ridge-scaling").splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in lines} == {4}


def test_missing_parts_say_so():
    nothing = ridge_scaling([])
    assert all(row[2] == row[3] == MISSING for row in nothing.rows)
    half = record()
    del half["metrics"]["finite"]
    rows = {row[0]: row for row in ridge_scaling([half]).rows}
    assert rows["|Delta R|, fits to separate samples"][2] == MISSING
    assert rows["risk change, |Delta R|"][2] == "2.000 [1.999, 2.001]"


def test_orthogonal_problems_alone_have_no_order():
    rows = {row[0]: row for row in ridge_scaling([unmoved()]).rows}
    assert rows["risk change, |Delta R|"][2:] == [MISSING, MISSING, MISSING]
    assert rows["shift penalty of the new model, L_x W1"][4] == "agrees"


def test_the_interval_is_the_widest_over_problems():
    wide = record(angle=0.0)
    wide["metrics"]["closed"]["slopes"]["small"]["shift_penalty"] = [1.02, 0.9, 1.3, 11]
    row = ridge_scaling([record(), wide]).rows[0]
    assert row[2] == "1.010 [0.900, 1.300]"
    assert row[4] == "disagrees"
