"""Who is tried again, and who is blamed, when workers are lost: a client that loses them by rule stands in for Dask."""

from collections import Counter

import pytest

from mona_infer.cohort.driver import LIVES, Driver
from mona_infer.errors import CheckFailed

KilledWorker = pytest.importorskip("distributed.scheduler", reason="needs the extra `cluster`").KilledWorker


class Future:
    def __init__(self, answer, status):
        self._answer, self.status = answer, status

    def add_done_callback(self, call):
        call(self)

    def result(self, timeout=None):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Cluster:
    """Two workers.  A task is lost if it holds an item of `deadly`, until that has been lost so many times."""

    def __init__(self, deadly, status="finished"):
        self.deadly, self.status, self.tasks = Counter(deadly), status, []
        self.client = self

    def count(self):
        return 2

    def replace_lost(self): ...

    def wait_for_workers(self, count): ...

    def submit(self, function, *arguments, **_):
        items, careful = arguments
        self.tasks.append((tuple(items), careful))
        lost = [item for item in items if self.deadly[item] > 0]
        self.deadly.subtract(lost)
        if lost:
            return Future(KilledWorker("task", None, 0), "error")
        return Future(function(items), self.status)


class Work:
    doing, name = "testing", "test"
    ended = False

    def task(self, items, careful):
        return (lambda held: [f"{item} done" for item in held]), items, careful

    def results(self, answer):
        return answer

    def bad(self, item):
        return f"{item} bad"

    def begin(self, client): ...

    def stop(self, client): ...

    def end(self, client):
        self.ended = True


def test_nobody_is_lost():
    cluster, work = Cluster({}), Work()
    assert sorted(Driver(cluster, work).run(list("abcdefghij"))) == [f"{x} done" for x in "abcdefghij"]
    assert work.ended and not any(careful for _, careful in cluster.tasks)
    assert sum(len(items) for items, _ in cluster.tasks) == 10


def test_a_worker_that_is_lost_by_chance_costs_a_second_try():
    cluster = Cluster({"c": 1})
    assert sorted(Driver(cluster, Work()).run(list("abcdefghijklmnop"))) == [f"{x} done" for x in "abcdefghijklmnop"]
    assert [items for items, careful in cluster.tasks if careful] == [("c", "d")]


def test_an_item_that_is_always_lost_is_bad_and_its_neighbours_are_not():
    cluster = Cluster({"c": 99})
    results = sorted(Driver(cluster, Work()).run(list("abcdefghijklmnop")))
    assert results == [f"{x} {'bad' if x == 'c' else 'done'}" for x in "abcdefghijklmnop"]
    assert cluster.tasks.count((("c",), True)) == LIVES


def test_an_item_that_is_lost_by_chance_while_it_is_alone_is_not_bad():
    assert "c done" in list(Driver(Cluster({"c": 1 + LIVES}), Work()).run(list("abcdefghijklmnop")))


def test_a_scheduler_that_is_gone_ends_the_command():
    with pytest.raises(CheckFailed, match="repeat the command"):
        list(Driver(Cluster({}, status="cancelled"), Work()).run(["a"]))
