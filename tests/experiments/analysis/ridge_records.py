"""A small ridge record whose orders, sizes and findings a test can bend."""

ORDERS = {"shift_penalty": 1.0, "weight_change": 2.0, "model_change": 2.0, "model_change_bound": 2.0, "mean_norm": 0.0,
          "cosp": 2.0, "risk_change": 2.0, "loss_slope": 0.0, "bound": 1.0, "tightness": -1.0}  # fmt: skip
SHIFTS = [0.001, 0.1, 10.0]


def fit(order, reach=0.001):
    return [order, order - reach, order + reach, 11]


def record(*, profile="cpu", seed=0, angle=45.0, small=None, large=None, curves=None, fresh=0.0, shared=1.0, **change):
    """Power laws with the true orders; ``small`` and ``large`` set slopes, ``curves`` curves, the rest entries."""
    orders = ORDERS | (small or {})
    laws = {name: [m**order for m in SHIFTS] for name, order in ORDERS.items() if name != "tightness"}
    laws["risk_change"] = [-0.5 * min(m**2, 1.0) for m in SHIFTS]
    laws["model_change_bound"] = [2 * size for size in laws["model_change"]]
    closed = {
        "shifts": SHIFTS,
        "curves": laws | (curves or {}),
        "slopes": {
            "small": {name: fit(order) for name, order in orders.items()},
            "large": {name: fit(order) for name, order in (dict.fromkeys(ORDERS, 1.0) | (large or {})).items()},
        },
        "risk_change_limit": -0.5,
        "quantiles": [[1e-1, 1.0], [1e-2, 2.0], [1e-3, 3.0], [1e-9, 4.0]],
        "monte_carlo_errors": {"risk_change": 2.5, "cosp": 1.0},
    }
    rows = [
        {"shift": m, "risk_change": -0.05, "bound_core": 5.0, "tightness": 100.0, "holds": True, "gap_source": 0.1,
         "gap_target": 0.2, "transport": m + 0.5} for m in (0.1, 10.0)
    ]  # fmt: skip
    finite = {
        "shifts": SHIFTS,
        "refits": {"fresh": [0.02, 0.03, -0.5], "shared": [1e-5, 1e-3, -0.5]},
        "slopes": {
            "small": {"fresh": fit(fresh), "shared": fit(shared)},
            "large": {"fresh": fit(0.0), "shared": fit(0.0)},
        },
        "diagnostics": rows,
    }
    for row in finite["diagnostics"]:
        row.update({key: value for key, value in change.items() if key in row})
    closed.update({key: value for key, value in change.items() if key in closed})
    config = {"lam": 1.0, "dim": 10, "angle": angle, "sigma": 0.5, "q": 0.99, "n": 300, "num_draws": 1000}
    return {
        "profile": profile,
        "seed": seed,
        "config": config | {"seed": seed},
        "metrics": {"closed": closed, "finite": finite},
    }


def unmoved(**options):
    """A record in which mu is orthogonal to w*: no change, and no slope of it."""
    still = ("weight_change", "model_change", "model_change_bound", "cosp", "risk_change")
    found = record(angle=90.0, curves={name: [0.0] * 3 for name in still}, **options)
    for slopes in found["metrics"]["closed"]["slopes"].values():
        slopes.update({name: [None, None, None, 0] for name in still})
        del slopes["tightness"]
    return found
