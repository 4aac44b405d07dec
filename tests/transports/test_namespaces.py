"""Two nodes in network namespaces of their own, joined by a link that goes down."""

import json
import os
import shutil
import subprocess

import pytest

from tests.transports.home import write_key
from tests.transports.test_processes import NODE, killed_in_the_end, start

#: Of the two ends.
HOSTS = ("10.213.77.1", "10.213.77.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


@pytest.fixture
def namespaces():
    """The names of two namespaces; each has one end, called `end`, of a link between them."""
    if shutil.which("ip") is None:
        pytest.skip("no program ip: install iproute2")
    names, made = [f"esvi{os.getpid()}-{j}" for j in range(2)], []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            other = ("peer", "name", "end", "netns", names[1])
            ip("link", "add", "end", "netns", names[0], "type", "veth", *other)
            for name, host in zip(names, HOSTS, strict=True):
                ip("-n", name, "address", "add", f"{host}/24", "dev", "end")
                ip("-n", name, "link", "set", "end", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        yield names
    finally:
        for name in made:
            ip("netns", "delete", name)


@pytest.mark.slow  # ten seconds are what it takes
def test_a_link_that_goes_down_is_told_by_both_nodes(tmp_path, namespaces):
    write_key(tmp_path / "key")
    nodes = [f"{host}:7600" for host in HOSTS]
    options = {"nodes": nodes, "key_file": str(tmp_path / "key")}
    commands = [
        ["ip", "netns", "exec", name, *NODE, "tcp", json.dumps({"rank": j, **options}), "endless"]
        for j, name in enumerate(namespaces)
    ]
    with killed_in_the_end([start(command) for command in commands]) as processes:
        for j, process in enumerate(processes):
            assert process.stdout.readline() == f"visits {j}\n", process.communicate()
        ip("-n", namespaces[1], "link", "set", "end", "down")
        for j, process in enumerate(processes):
            _, error = process.communicate(timeout=40)
            assert process.returncode == 1
            assert f"node {1 - j} ({nodes[1 - j]})" in error and "Traceback" not in error
