"""Files from the network: downloads that go on, archives that stay in their folder, packages of npm and PyPI."""
