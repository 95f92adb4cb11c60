"""A run on a Ray cluster with faults produces the same bits as an undisturbed run without a cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import brokers
import pytest
import rounds
from runs import FilesRun, after_a_round, below, here, is_loopback, listening, workers_of
from waiting import LIMIT, wait_for

pytestmark = pytest.mark.ray

SIZES = 2500, 1800, 1500


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return rounds.write(tmp_path_factory.mktemp("data"), *(rounds.records(n, seed) for seed, n in enumerate(SIZES)))


@pytest.fixture(scope="module")
def calm(data, tmp_path_factory):
    """The result of a run whose workers are all in this process."""
    run = FilesRun(data, tmp_path_factory.mktemp("calm"))
    here(run.config)
    return run.told()


def test_workers_killed_at_random_moments(data, calm, tmp_path):
    run, rng, times = FilesRun(data, tmp_path), random.Random(1), 0
    process = run.start()
    while times < 3 and after_a_round(run, process, rng):
        if found := workers_of(process.pid):
            assert all(is_loopback(address) for address in listening([process.pid, *below(process.pid)]))
            os.kill(rng.choice(found), signal.SIGKILL)
            times += 1
    assert process.wait(LIMIT) == 0, run.log()
    assert times > 0  # a fast machine may reach the end before the others
    assert run.log().count("a worker was lost; repeating its assignment") >= 1
    assert run.told() == calm


def test_drivers_stopped_and_killed_leave_nothing_behind(data, calm, tmp_path):
    run, rng = FilesRun(data, tmp_path), random.Random(2)
    process = run.start()
    assert after_a_round(run, process, rng)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()
    before = run.rounds()
    process = run.start()
    assert after_a_round(run, process, rng)
    started = below(process.pid)
    assert any(title.startswith("ray::_Worker") for title in started.values())
    process.kill()
    process.wait()
    assert run.rounds() > before
    run.finish()  # at once
    assert run.told() == calm
    wait_for(lambda: not [title for pid, title in started.items() if Path(f"/proc/{pid}").exists()])


def test_another_number_of_workers(data, tmp_path):
    """From the file at a restart, and at SIGHUP."""
    run, rng = FilesRun(data, tmp_path, workers=1, events_per_round=100), random.Random(4)
    process = run.start()
    assert after_a_round(run, process, rng)
    run.planned(workers=3, events_per_round=100)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(workers_of(process.pid)) == 3)
    assert after_a_round(run, process, rng)
    process.kill()
    process.wait()
    run.planned(workers=2)
    run.finish()
    rounds.assert_each_once(run.folder, SIZES)


def test_a_cluster_whose_client_server_dies_at_once_is_retried(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S", "15")  # on a busy machine one starts late
    monkeypatch.setenv("RAY_CLIENT_RECONNECT_GRACE_PERIOD", "1")
    port = brokers.free_port()
    cluster = Cluster(initialize_head=True, head_node_args=head_of(port))
    try:
        program = f"from streamkernel.cluster.workers import connect_to_ray; print(connect_to_ray('ray://127.0.0.1:{port}').nodes())"
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen([sys.executable, "-c", program], **told) as driver:
            wait_for(lambda: servers_of_drivers())
            os.kill(servers_of_drivers()[0], signal.SIGKILL)
            said, _ = driver.communicate(timeout=LIMIT)
    finally:
        cluster.shutdown()
    assert "retrying the cluster           reason='RuntimeError: Proxy failed to Connect to backend!" in said
    assert driver.returncode == 0, said
    assert "NodeID" in said


def head_of(port: int) -> dict[str, object]:
    """Return the options of a cluster's head node to which remote drivers can connect."""
    return {"num_cpus": 0, "ray_client_server_port": port, "include_dashboard": False}


def servers_of_drivers() -> list[int]:
    """Return the processes that our clusters have started for remote drivers."""
    return [pid for pid, title in below(os.getpid()).items() if "--mode=specific-server" in title]


def test_a_node_lost_in_a_round_of_a_driver_that_is_outside_the_cluster(data, calm, tmp_path):
    """Of two nodes, each with room for both workers, the one that has a worker is removed."""
    from ray.cluster_utils import Cluster

    port = brokers.free_port()
    cluster = Cluster(initialize_head=True, head_node_args=head_of(port))
    try:
        raylets = {}
        for _ in range(2):
            node = cluster.add_node(num_cpus=2)
            raylets[node.all_processes["raylet"][0].process.pid] = node
        run = FilesRun(data, tmp_path, address=f"ray://127.0.0.1:{port}")
        process = run.start()
        assert after_a_round(run, process, random.Random(6)), run.log()
        busy = next(pid for pid in raylets if workers_of(pid))
        cluster.remove_node(raylets[busy], allow_graceful=False)
        assert process.wait(LIMIT) == 0, run.log()
    finally:
        cluster.shutdown()
    assert "a worker was lost; repeating its assignment" in run.log()
    assert run.told() == calm
