"""The packages of the wheel: whatever folder of trace/ is one, under the name trace_shift."""

from setuptools import find_packages, setup

setup(packages=["trace_shift", *(f"trace_shift.{name}" for name in find_packages("trace"))])
