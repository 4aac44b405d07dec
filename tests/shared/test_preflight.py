"""What is free, under every limit, and where segments go for it."""

import logging
import os
from pathlib import Path

import pytest

from esvi_shm.errors import MemoryShortError
from esvi_shm.shared import preflight
from esvi_shm.shared.preflight import (
    UNLIMITED,
    check_memory,
    choose_backing,
    free_memory,
    free_shared_memory,
    free_space,
)

GB = 2**30


def machine(root: Path, groups: str, files: dict[str, object], available: int = 64 * GB) -> Path:
    """A /proc and a /sys that say so."""
    contents = {
        "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {available // 1024} kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{path}": text for path, text in files.items()},
    }
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n" if text != "" else "")
    return root


def test_without_control_groups_it_is_what_the_machine_has(tmp_path) -> None:
    assert free_memory(machine(tmp_path, "", {})) == 64 * GB
    (tmp_path / "proc/self/cgroup").unlink()
    assert free_memory(tmp_path) == 64 * GB


def test_version_2_limits_by_the_tightest_parent(tmp_path) -> None:
    files = {
        "a/memory.max": 10 * GB,
        "a/memory.current": 7 * GB,
        "a/memory.stat": f"anon 5\ninactive_file {GB}\nactive_file {GB}",
        "a/b/memory.max": "max",
        "a/b/memory.current": 2 * GB,
    }
    assert free_memory(machine(tmp_path, "0::/a/b", files)) == 4 * GB


def test_version_1_is_read_from_its_own_tree(tmp_path) -> None:
    files = {
        "memory/c/memory.limit_in_bytes": 8 * GB,
        "memory/c/memory.usage_in_bytes": 3 * GB,
        "memory/c/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB}",
        "memory/memory.limit_in_bytes": 2**63 - 4096,
        "memory/memory.usage_in_bytes": 20 * GB,
    }
    assert free_memory(machine(tmp_path, "5:cpu:/x\n4:memory:/c\n0::/", files)) == 6 * GB


def test_a_container_sees_only_the_root_of_its_group(tmp_path) -> None:
    files = {"memory.max": 4 * GB, "memory.current": GB}
    root = machine(tmp_path, "0::/docker/0123", files)
    assert free_memory(root) == 3 * GB


def test_a_group_above_its_limit_has_nothing_free(tmp_path) -> None:
    files = {"memory.max": GB, "memory.current": 2 * GB}
    assert free_memory(machine(tmp_path, "0::/", files)) == 0


def test_a_limit_above_the_machine_does_not_help(tmp_path) -> None:
    files = {"memory.max": 999 * GB, "memory.current": 0}
    assert free_memory(machine(tmp_path, "0::/", files, available=GB)) == GB


def test_this_machine_has_memory() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < free_memory() <= total
    assert free_shared_memory() == free_space("/dev/shm")


def test_a_file_system_without_a_limit(monkeypatch) -> None:
    fields = {"f_blocks": 0, "f_bavail": 0, "f_frsize": 4096}
    monkeypatch.setattr(os, "statvfs", lambda folder: type("Found", (), fields))
    assert free_space("/dev/shm") == UNLIMITED
    monkeypatch.setattr(os, "access", lambda *_: False)  # where it is read-only
    assert free_shared_memory() == 0


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """What is free, as the test says."""
    amounts = {"shm": 8 * GB, "memory": 8 * GB, "disk": 8 * GB}
    monkeypatch.setattr(preflight, "free_shared_memory", lambda: amounts["shm"])
    monkeypatch.setattr(preflight, "free_memory", lambda: amounts["memory"])
    monkeypatch.setattr(preflight, "free_space", lambda folder: amounts["disk"])
    return amounts


def test_shared_memory_if_it_fits_to_the_byte(free, caplog) -> None:
    assert choose_backing(8 * GB) == "shm"
    assert choose_backing(8 * GB, "/scratch") == "shm"
    assert caplog.records == []


def test_files_if_shared_memory_is_small(free, caplog) -> None:
    free["shm"] = 64 * 2**20
    with caplog.at_level(logging.WARNING):
        assert choose_backing(GB, "/scratch") == "file"
    assert "using files in /scratch" in caplog.text
    assert "need 1,024.0 MiB; 64.0 MiB are free in /dev/shm" in caplog.text
    assert "speed of the disk" not in caplog.text


def test_more_than_the_memory_only_on_a_scratch_folder_that_was_named(free, caplog) -> None:
    free["memory"] = GB
    with pytest.raises(MemoryShortError):
        choose_backing(2 * GB)
    assert choose_backing(2 * GB, "/scratch") == "file"
    assert "expect the speed of the disk" in caplog.text


def test_too_much_for_all_says_how_much_is_needed_and_free(free) -> None:
    free.update(shm=2**26, memory=2 * GB, disk=GB)
    with pytest.raises(MemoryShortError) as caught:
        choose_backing(3 * GB, "/scratch")
    for words in ("need 3,072.0 MiB", "64.0 MiB are free in /dev/shm", "2,048.0 MiB of memory",
                  "1,024.0 MiB in /scratch"):  # fmt: skip
        assert words in str(caught.value)


def test_private_memory_is_checked_to_the_byte(free) -> None:
    check_memory(8 * GB, "this")
    with pytest.raises(MemoryShortError) as caught:
        check_memory(8 * GB + 2**20, "this")
    assert str(caught.value) == "not enough memory: this takes 8,193.0 MiB, 8,192.0 MiB are free"
