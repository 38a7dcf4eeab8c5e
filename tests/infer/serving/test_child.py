"""A process of the server's: it ends as it would alone, and with the server when that is gone."""

import subprocess
import sys
import time

CHILD = [sys.executable, "-m", "mona_infer.serving.child"]


def test_it_ends_with_its_own_exit_code_while_the_server_lives(tmp_path):
    for arguments, code in ((["--version"], 0), (["segment", "nowhere.nii.gz", "--out", "m.nii.gz"], 2)):
        process = subprocess.Popen([*CHILD, *arguments], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.wait(60) == code, process.stderr.read()
        process.stdin.close()


def test_it_is_interrupted_when_the_server_is_gone(tmp_path):
    process = subprocess.Popen([*CHILD, "serve", "--port", "0"], cwd=tmp_path, stdin=subprocess.PIPE)
    time.sleep(0.2)
    process.stdin.close()
    assert process.wait(60) in (130, -2)
