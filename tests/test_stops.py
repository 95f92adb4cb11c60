"""Signals in quick succession that stop a run of the command line."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from test_cli import command, events, prepared, wait_for_lines
from waiting import LIMIT


def test_signals_until_the_process_has_ended_do_not_change_its_exit_code(tmp_path: Path) -> None:
    config = prepared(tmp_path / "run", events(2000))
    with subprocess.Popen(command("run", config), stderr=subprocess.DEVNULL) as process:
        wait_for_lines(tmp_path / "run" / "predictions.jsonl", 300)
        end = time.monotonic() + LIMIT
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGTERM)
            time.sleep(3e-4)
        process.kill()
    assert process.returncode == 0


def test_a_run_that_is_stopped_after_a_refused_record_has_not_failed(tmp_path: Path) -> None:
    """Of a member of a group it may be the only one; a run that has read all of its records fails."""
    config = prepared(tmp_path / "run", '{"a": 1.0, "b"\n')
    config.write_text(config.read_text().replace("[sink]", '[sink]\ndead_letters = "dead_letters.jsonl"'))
    with subprocess.Popen(command("run", config), stderr=subprocess.DEVNULL) as process:
        wait_for_lines(tmp_path / "run" / "dead_letters.jsonl", 1)
        process.terminate()
        assert process.wait(LIMIT) == 0
