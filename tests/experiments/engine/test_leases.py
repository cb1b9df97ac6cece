"""Leases: one holder, taken over from those that are gone and from nobody else; what is stored once stays."""

import dataclasses
import errno
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from experiments.engine import leases
from experiments.engine.leases import POLL, TIMEOUT, Holder, Lease, Watch, acquire, leased, look, store_once
from experiments.engine.records import ROOT


class Clock:
    """Time that passes when somebody sleeps, and what else happens then."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.meanwhile = 1000.0, meanwhile

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.meanwhile()


def far_away(path, **said):
    """A lease whose holder is a process of another machine."""
    holder = dataclasses.replace(Holder.myself(), host="node7", place="node7 boot pid:[1]", **said)
    path.parent.mkdir(parents=True, exist_ok=True)
    assert leases._take(path, holder)
    return Lease(path, holder)


def attempt(path, clock, *, wait=False):
    return acquire(path, wait=wait, watch=Watch(path, clock=clock), sleep=clock.sleep)


def test_one_holder_and_nothing_left_behind(tmp_path):
    path = tmp_path / "deep" / "lease"
    lease = acquire(path)
    assert look(path) == lease.holder
    assert acquire(path) is None
    lease.release()
    assert look(path) is None
    assert list(path.parent.iterdir()) == []
    acquire(path).release()


def test_a_lease_says_who_holds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    lease = acquire(tmp_path / "lease")
    lease.beat()
    lease.beat()
    found = look(tmp_path / "lease")
    assert (found.pid, found.host, found.job, found.count) == (os.getpid(), os.uname().nodename, "12_3", 2)
    assert str(found) == f"process {os.getpid()} on {os.uname().nodename}, job 12_3"


def test_a_counter_that_stands_still_is_taken_over_on_the_own_clock(tmp_path):
    clock = Clock()
    old = far_away(tmp_path / "lease")
    new = attempt(tmp_path / "lease", clock)
    assert look(tmp_path / "lease") == new.holder
    assert TIMEOUT <= clock.now - 1000 <= TIMEOUT + 2 * POLL
    old.beat()
    assert old.lost
    old.release()
    assert look(tmp_path / "lease") == new.holder, "a release removes only one's own"
    new.beat()
    assert not new.lost


def test_one_count_shows_a_holder_elsewhere_to_be_alive(tmp_path):
    old = far_away(tmp_path / "lease")
    clock = Clock(lambda: old.beat() if clock.now > 1000 + 0.9 * TIMEOUT else None)
    assert attempt(tmp_path / "lease", clock) is None
    assert clock.now < 1000 + TIMEOUT
    assert look(tmp_path / "lease") == old.holder


def test_waiting_goes_on_as_long_as_the_holder_counts(tmp_path):
    old = far_away(tmp_path / "lease")
    looks = itertools.count()

    def meanwhile():
        if (number := next(looks)) < 900 and number % 25 == 0:
            old.beat()

    clock = Clock(meanwhile)
    assert attempt(tmp_path / "lease", clock, wait=True) is not None
    assert clock.now - 1000 >= 875 * POLL + TIMEOUT


@pytest.mark.parametrize("jump", [3600.0, 86400.0])
def test_a_clock_that_jumps_shows_nobody_to_be_gone(tmp_path, jump):
    """As for a process that was paused together with the holder, and goes on a moment before it."""
    old, jumps = far_away(tmp_path / "lease"), iter([jump])
    clock = Clock(lambda: setattr(clock, "now", clock.now + next(jumps, 0.0)))
    watch = Watch(tmp_path / "lease", clock=clock)
    for _ in range(5):
        watch.look()
        clock.sleep(POLL)
        assert not watch.abandoned()
    old.beat()
    watch.look()
    assert watch.counted


def test_the_time_of_day_plays_no_part(tmp_path, monkeypatch):
    far_away(tmp_path / "lease")
    monkeypatch.setattr("time.time", lambda: pytest.fail("looked at the time of day"))
    path = next((tmp_path / "lease").iterdir())
    for stamp in (0, 4e9):
        os.utime(path, (stamp, stamp))
        assert acquire_soon(tmp_path / "lease") is False


def acquire_soon(path):
    """Whether a lease can be had within half of the timeout."""
    clock = Clock(lambda: (_ for _ in ()).throw(TimeoutError) if clock.now > 1000 + TIMEOUT / 2 else None)
    try:
        return attempt(path, clock) is not None
    except TimeoutError:
        return False


def test_a_process_of_this_machine_that_ended_is_gone_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from experiments.engine.leases import acquire; "
        "acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    path, pipe = tmp_path / "lease", subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, path], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert acquire(path) is None
        process.send_signal(signal.SIGSTOP)
        assert acquire(path) is None, "one that is paused may go on"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has asked for its exit code
        clock = Clock()
        assert attempt(path, clock) is not None
        assert clock.now == 1000


def test_another_process_with_the_same_number_is_another(tmp_path):
    path = tmp_path / "lease"
    assert leases._take(path, dataclasses.replace(Holder.myself(), started="1"))
    clock = Clock()
    assert attempt(path, clock) is not None
    assert clock.now == 1000


def test_a_number_of_another_namespace_says_nothing(tmp_path):
    far_away(tmp_path / "lease", pid=2**22 + 1)
    assert acquire_soon(tmp_path / "lease") is False


@pytest.mark.parametrize("content", [b"", b"\0" * 200, b"{}\n1\n", b'{"pid": 3', b'["a"]\n0\n'])
def test_a_lease_that_a_crash_of_its_machine_spoiled_is_taken_over_in_time(tmp_path, content):
    path = tmp_path / "lease"
    lease = far_away(path)
    (path / lease.holder.token).write_bytes(content)
    assert acquire_soon(path) is False
    assert attempt(path, Clock()) is not None


def test_a_deleted_lease_is_taken_again_by_its_holder_unless_somebody_has_it(tmp_path):
    path = tmp_path / "lease"
    first = acquire(path)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    first.beat()
    assert not first.lost
    assert look(path) == first.holder
    (path / first.holder.token).unlink()
    second = acquire(path)
    first.beat()
    assert first.lost
    first.release()
    assert look(path) == second.holder
    assert [p.name for p in tmp_path.iterdir()] == ["lease"]


def test_a_deleted_folder_stays_deleted(tmp_path):
    lease = acquire(tmp_path / "run" / "lease")
    (tmp_path / "run" / "lease" / lease.holder.token).unlink()
    (tmp_path / "run" / "lease").rmdir()
    (tmp_path / "run").rmdir()
    lease.beat()
    assert lease.lost
    lease.release()
    assert list(tmp_path.iterdir()) == []


def test_the_thread_counts_and_ends_with_the_lease(tmp_path):
    lease = acquire(tmp_path / "lease")
    third = threading.Event()
    counted = lease.beat

    def beat():
        counted()
        if lease._count == 3:
            third.set()

    lease.beat = beat
    lease.keep(heartbeat=0.001)
    assert third.wait(10)
    lease.release()
    assert not lease._thread.is_alive()


def test_a_file_system_that_fails_for_a_while_costs_no_lease(tmp_path, monkeypatch):
    lease, opened, calls = acquire(tmp_path / "lease"), os.open, iter(range(100))
    counted = threading.Event()

    def failing(*arguments):
        if next(calls) < 5:
            raise OSError(errno.ESTALE, "Stale file handle")
        counted.set()
        return opened(*arguments)

    monkeypatch.setattr(leases.os, "open", failing)
    lease.keep(heartbeat=0.001)
    assert counted.wait(10)
    lease.release()
    assert not lease.lost


def test_a_holder_whose_thread_died_is_taken_over(tmp_path):
    """Nobody can tell it from one that is gone; what it stores comes too late, or first."""
    path = tmp_path / "lease"
    lease = far_away(path)
    lease._released.set()
    lease.keep()
    new = attempt(path, Clock())
    assert store_once(tmp_path / "record", b"new")
    assert not store_once(tmp_path / "record", b"old")
    lease.release()
    assert look(path) == new.holder
    assert (tmp_path / "record").read_text() == "new"


@pytest.mark.parametrize("answer", [errno.ENOENT, errno.EIO])
def test_an_answer_that_is_lost_on_its_way_is_no_refusal(tmp_path, monkeypatch, answer):
    rename, link = os.rename, os.link

    def lost(source, target):
        rename(source, target)
        raise OSError(answer, "asked twice")

    def linked(source, target):
        link(source, target)
        raise FileExistsError(errno.EEXIST, "asked twice")

    monkeypatch.setattr(leases.os, "rename", lost)
    monkeypatch.setattr(leases.os, "link", linked)
    assert acquire(tmp_path / "lease") is not None
    assert store_once(tmp_path / "record", b"text")


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    def closed(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

    monkeypatch.setattr(leases.Path, "mkdir", closed)
    with pytest.raises(OSError, match="Read-only file system"):
        acquire(tmp_path / "lease")


def test_two_observers_whose_looks_interleave_anyhow(tmp_path, monkeypatch):
    """Between the look of the first and its takeover the second takes over, works and gives back, or is still at it."""
    path = tmp_path / "lease"
    old, move_out = far_away(path, pid=1), leases._move_out
    others = []

    def overtaken(place, holder):
        monkeypatch.setattr(leases, "_move_out", move_out)
        others.append(attempt(path, Clock()))
        move_out(place, holder)

    monkeypatch.setattr(leases, "_move_out", overtaken)
    assert attempt(path, Clock()) is None
    assert look(path) == others[0].holder != old.holder


def race(path, races, barrier, wins):
    """Everybody tries at once for a lease whose holder is gone."""
    for number in range(races):
        lease_path = path / str(number) / "lease"
        barrier.wait()
        lease = acquire(lease_path)
        if lease is not None:
            with open(wins, "a", encoding="ascii") as file:
                file.write(f"{number}\n")
        barrier.wait()
        if lease is not None:
            lease.release()


def test_of_many_takeovers_at_once_exactly_one_wins(tmp_path):
    races, crew = 300, 3
    for number in range(races):
        (tmp_path / str(number)).mkdir()
        holder = dataclasses.replace(Holder.myself(), started="1")
        assert leases._take(tmp_path / str(number) / "lease", holder)
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(crew), tmp_path / "wins"
    arguments = (tmp_path, races, barrier, wins)
    workers = [context.Process(target=race, args=arguments) for _ in range(crew)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * crew
    assert Counter(wins.read_text().split()) == {str(number): 1 for number in range(races)}
    assert not list(tmp_path.glob("*/*")), "nothing is left behind"


def work(path, rounds):
    """Add one to a number in a file, again and again, which goes wrong for two at once."""
    for _ in range(rounds):
        with leased(path / "lease", waiting="another worker counts"):
            number = int((path / "number").read_text())
            (path / "number").write_text(str(number + 1))


def test_those_who_wait_get_it_one_after_the_other(tmp_path):
    (tmp_path / "number").write_text("0")
    workers = [multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path, 15)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (tmp_path / "number").read_text() == "45"


def test_a_lease_says_what_it_waits_for(tmp_path, capsys):
    path, said = tmp_path / "lease", []
    lease = far_away(path)
    clock = Clock()
    acquire(path, wait=True, waiting=said.append, watch=Watch(path, clock=clock), sleep=clock.sleep)
    assert said == [lease.holder]
    with leased(tmp_path / "free", waiting="nobody"):
        assert capsys.readouterr().err == ""


def test_what_is_stored_once_stays(tmp_path):
    path = tmp_path / "record"
    assert store_once(path, b"first")
    assert not store_once(path, b"second")
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["record"]


def test_a_full_disk_stores_nothing_in_part(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(leases.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store_once(tmp_path / "record", b"text")
    assert list(tmp_path.iterdir()) == []
