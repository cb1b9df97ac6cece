"""Records of `synthetic` and `isolation` made by hand: each column is a number or a function of severity and seed."""

from experiments import synthetic
from experiments.engine.config import Run

SEVERITIES = (0.0, 0.25, 1.0, 2.0)
SEEDS = (0, 1, 2, 3)
REMAINDERS = {"label_noise": 0.5, "validation_error": 0.25, "lipschitz_loss": 1.5}

COLUMNS = {
    "risk_change": lambda s, k: 0.4 * s + 0.01 * (k + 1),
    "error_change": 0.1,
    "gap_source": 0.01,
    "gap_target": 0.02,
    "output_distance": lambda s, k: 0.5 + 2 * s + 0.01 * k,
    "output_distance_squared": lambda s, k: (0.5 + 2 * s) ** 2 + 0.01 * k,
    "sensitivity_source": 2.0,
    "sensitivity_target": lambda s, k: 3.0 + 0.1 * k,
    "transport": lambda s, k: 0.01 + s**2 + 0.001 * k,
    "mmd_squared": lambda s, k: 0.01 + 0.1 * s + 0.001 * k,
    "rkhs_norm": lambda s, k: 2.0 + k,
    "rkhs_at_edge": 0,
    "population_ot": 0.125,
    "population_mmd": 0.125,
    "anchor_worst_label": lambda s, k: 1.0 + s,
    "anchor_upper": lambda s, k: 2.0 + s,
    "anchor_lipschitz": lambda s, k: 1.5 + s,
    "anchor_disagreement": lambda s, k: 0.1 * s,
    "anchor_plug_in": lambda s, k: 0.3 * s,
    "floor": 0.01,
}


def columns(points, changes):
    """Columns at points (severity, weight decay, seed, step size)."""
    found = {"severity": [p[0] for p in points], "weight_decay": [p[1] for p in points],
             "seed": [p[2] for p in points], "finetune_lr": [p[3] for p in points]}  # fmt: skip
    for name, value in {**COLUMNS, **changes}.items():
        found[name] = [value(p[0], p[2]) if callable(value) else value for p in points]
    return found


def record(world="blobs_shift", *, models=None, severities=SEVERITIES, seeds=SEEDS, details=None, **rest):
    fields = {name: rest.pop(name) for name in ("labels", "options", "n", "n_target", "development", "shared_draw")
              if name in rest}  # fmt: skip
    run = Run("synthetic", synthetic.Config(world=world, severities=list(severities), seeds=list(seeds), **fields))
    points = [(s, 1e-4, k, 1e-3) for s in severities for k in seeds]
    names = models or [spec.name for spec in run.config.models]
    kept = {"columns": columns(points, rest), "remainders": REMAINDERS, **(details or {})}
    return {"run_id": run.run_id, "profile": "cpu", "config": run.values, "metrics": dict.fromkeys(names, kept)}


def grid(world="blobs_shift", **changes):
    """A cell with its development candidates."""
    development = {**changes, "development": True, "seeds": [100], "severities": [0.3, 0.6, 0.9]}
    return [record(world, **changes), record(world, **development)]


def both(**changes):
    return grid(**changes) + grid("moons_warp", **changes)


def excerpt(world="blobs_shift", *, n=2000, **changes):
    return [record(world, n=n, n_target=n, shared_draw=True, **changes)]


def isolation(world="blobs_shift", vary="lr", *, points=((0.5, 1e-4), (0.5, 1e-3), (0.5, 1e-2)), **by_lr):
    """Columns as functions of the knob and the seed."""
    rows = [(s, 1e-4, k, lr) for s, lr in points for k in SEEDS]
    found = columns(rows, {})
    for name, value in by_lr.items():
        found[name] = [value(row[3] if vary == "lr" else row[0], row[2]) for row in rows]
    config = {"world": world, "vary": vary, "n": 2000, "c_h": 1.0}
    return {"run_id": world + vary, "profile": "cpu", "config": config,
            "metrics": {"columns": found, "remainders": REMAINDERS}}  # fmt: skip
