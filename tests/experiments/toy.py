"""A tiny experiment for the tests of the run engine; it counts how often it is computed."""

import os
import time
from dataclasses import dataclass, field

import torch

from experiments.engine.config import Run
from experiments.engine.run import execute

TOY = "tests.experiments.toy"


@dataclass(frozen=True)
class Config:
    profile: str = "smoke"
    seed: int = 0
    scale: float = 1.0
    mode: str = "plain"
    """plain, fail, slow, kill (dies without a word after its first step), memory (200 MB), hog (1.6 GB, for a minute),
    shared (what all runs of a scale share, in a second), held (until it is let go), steps (6 seconds), empty."""
    layers: list[int] = field(default_factory=lambda: [2])


def grid(n, **options):
    """n runs that differ in their seed."""
    return [Run(TOY, Config(seed=seed, **options)) for seed in range(n)]


def run(config, context):
    with open(os.environ["TOY_COUNTER"], "a") as counter:
        counter.write(f"{config.seed} {config.scale}\n")
    print("hello from", config.seed)
    if config.mode == "empty":
        return {"seed": config.seed}
    if config.mode == "fail":
        raise RuntimeError(f"seed {config.seed} fails on purpose")
    if config.mode == "slow":
        time.sleep(0.5)
    if config.mode == "memory":
        torch.ones(50_000_000)
    if config.mode == "hog":
        held = torch.ones(400_000_000)
        time.sleep(60)
        return {"sum": float(held.sum())}
    if config.mode == "held":
        while not os.path.exists(os.environ["TOY_COUNTER"] + ".go"):
            time.sleep(0.05)
    if config.mode == "shared":
        drawn = context.shared("toy", {"scale": config.scale}, lambda: slowly_counted(config.scale))
        return {"sum": float(drawn.sum())}
    if config.mode == "steps":
        return take_steps(context)
    state = context.load() or {"step": 0}
    for step in range(state["step"], 3):
        context.log(step, loss=config.scale / (1 + step))
        context.save({"step": step + 1})
        if config.mode == "kill" and step == 0:
            os.kill(os.getpid(), 9)
    draw = torch.randn(200_000, generator=torch.Generator().manual_seed(config.seed))
    return {"mean": float(config.scale * draw.mean()), "undefined": float("nan")}


def slowly_counted(scale):
    with open(os.environ["TOY_COUNTER"], "a") as counter:
        counter.write(f"shared {scale}\n")
    time.sleep(1)
    return torch.full((3,), scale)


def take_steps(context):
    """60 steps; every tenth is saved, the others only if a warning comes."""
    state = context.load() or {"step": 0}
    for step in range(state["step"], 60):
        time.sleep(0.1)
        context.log(step, loss=0.0)
        state = {"step": step + 1}
        if state["step"] % 10 == 0:
            context.save(state)
        context.checkpoint(lambda state=state: state)
    return {"steps": state["step"]}


def one_run_worker(tasks, runs, wandb):
    """A worker that is gone after its first run."""
    tasks.send(execute(tasks.recv(), runs=runs, wandb=wandb))
