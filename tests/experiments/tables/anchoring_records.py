"""Records of `anchoring` with known answers: a plain fine-tune that harms, and methods that undo a part of it."""

METHODS = {
    "worst_label": [0.1, 1.0, 10.0],
    "lipschitz": [0.1, 1.0, 10.0],
    "plug_in": [0.1, 1.0, 10.0],
    "rehearsal": [0.1, 1.0, 10.0],
    "distillation": [0.1, 1.0, 10.0],
    "early_stop": [0.25, 0.5],
    "small_steps": [0.25, 0.5],
    "interpolation": [0.25, 0.5],
}
HARM = 0.4


def record(study="moons_warp", seed=0, *, left=None, penalised=0.25, certificate=2.0):
    """One run. Strength k (from 0) leaves ``left[method] ** (k + 1)`` of the harm; the last one costs the target."""
    rows = [("plain", 1.0, 1.0, 0.10)]
    for method, strengths in METHODS.items():
        kept = (left or {}).get(method, penalised if len(strengths) == 3 else 0.8)
        ordered = strengths if len(strengths) == 3 else strengths[::-1]  # restraint grows
        for k, strength in enumerate(ordered):
            cost = 0.105 if k < len(ordered) - 1 else 0.30
            rows.append((method, strength, kept ** (k + 1), cost))
    harm = HARM + 0.01 * seed
    columns = {
        "strength": [strength for _, strength, _, _ in rows],
        "risk_change": [harm * part for _, _, part, _ in rows],
        "error_change": [harm * part / 4 for _, _, part, _ in rows],
        "target_error_before": [0.5] * len(rows),
        "target_error": [error + 0.001 * (seed % 2) for *_, error in rows],
        "target_val_error": [error for *_, error in rows],
        "output_distance": [3 * part for _, _, part, _ in rows],
        "anchor_worst_label": [part for _, _, part, _ in rows],
        "anchor_upper": [certificate * part + 0.1 for _, _, part, _ in rows],
        "anchor_lipschitz": [2 * part for _, _, part, _ in rows],
        "anchor_disagreement": [part / 5 for _, _, part, _ in rows],
        "anchor_plug_in": [part / 3 for _, _, part, _ in rows],
    }
    config = {"study": study, "seed": seed, "severity": 1.0, "data": "emoji", "source": "real", "target": "sketch"}
    return {"run_id": f"{study}{seed}", "profile": "cpu", "config": config,
            "metrics": {"columns": columns, "methods": [row[0] for row in rows]}}  # fmt: skip


def both(**options):
    return [record(study, seed, **options) for study in ("images", "moons_warp") for seed in range(4)]
