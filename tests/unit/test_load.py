"""How loaded the machine is: real measurements here, fixed text and bytes for every other machine."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.host import ceiling, load, platform

ROOT = Path(__file__).parents[2]
needs_linux = pytest.mark.skipif(not platform.LINUX, reason="reads /proc")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become an account without processes")

# ---------------------------------------------------------------- processes of an account


def in_child(code: str) -> str:
    """What a Python of its own prints."""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@needs_root
@needs_linux
def test_zombies_count_and_threads_are_told_apart() -> None:
    code = """
import os, threading
from clawq.host import platform
os.setuid(61235)
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
gone = threading.Event()
threads = [threading.Thread(target=gone.wait) for _ in range(5)]
[thread.start() for thread in threads]
print(*platform.account(61235))
gone.set()
"""
    assert in_child(code) == "4 9"


@needs_root
def test_the_real_uid_counts_not_the_effective_one() -> None:
    code = """
import os
import psutil
from clawq.host import load
os.setreuid(61236, 61237)
for uid in (61236, 61237):
    print(load._account(uid).procs, load._count_through_psutil(uid))
"""
    assert in_child(code).split() == ["1", "1", "0", "0"]


def test_our_own_processes_are_more_than_none() -> None:
    assert (load.sample("/").user_procs or 0) >= 1
    assert load._count_through_psutil(os.getuid()) >= 1


STATUS = b"""Name:\t%s
Umask:\t0022
State:\tZ (zombie)
Tgid:\t4711
Uid:\t1000\t0\t0\t0
Gid:\t1000\t1000\t1000\t1000
Threads:\t7
"""


@given(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_the_owner_is_the_real_uid_whatever_a_process_calls_itself(name: str) -> None:
    assert platform.owner_in_status(STATUS % name.encode()) == (1000, 7)


def test_a_process_that_is_gone_has_no_owner() -> None:
    assert platform.owner_in_status(b"") == (None, 0)
    assert platform.owner_in_status(b"Name:\tUid:\t1000\n") == (None, 0)


# macOS's own declarations (sys/proc.h, sys/sysctl.h, sys/resource.h, 64 bits), laid out by ctypes.
POINTER, INT, SHORT, CHAR = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int16, ctypes.c_char
BYTE, LONG = ctypes.c_uint8, ctypes.c_uint64


class Timeval(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_int64), ("tv_usec", INT)]


class ExternProc(ctypes.Structure):
    _fields_ = [
        ("p_starttime", Timeval),
        ("p_vmspace", POINTER),
        ("p_sigacts", POINTER),
        ("p_flag", INT),
        ("p_stat", CHAR),
        ("p_pid", INT),
        ("p_oppid", INT),
        ("p_dupfd", INT),
        ("user_stack", POINTER),
        ("exit_thread", POINTER),
        ("p_debugger", INT),
        ("sigwait", INT),
        ("p_estcpu", INT),
        ("p_cpticks", INT),
        ("p_pctcpu", INT),
        ("p_wchan", POINTER),
        ("p_wmesg", POINTER),
        ("p_swtime", INT),
        ("p_slptime", INT),
        ("p_realtimer", Timeval * 2),
        ("p_rtime", Timeval),
        ("p_ticks", LONG * 3),
        ("p_traceflag", INT),
        ("p_tracep", POINTER),
        ("p_siglist", INT),
        ("p_textvp", POINTER),
        ("p_holdcnt", INT),
        ("p_sigmasks", INT * 3),
        ("p_priority", BYTE),
        ("p_usrpri", BYTE),
        ("p_nice", CHAR),
        ("p_comm", CHAR * 17),
        ("p_pgrp", POINTER),
        ("p_addr", POINTER),
        ("p_xstat", SHORT),
        ("p_acflag", SHORT),
        ("p_ru", POINTER),
    ]


class Pcred(ctypes.Structure):
    _fields_ = [
        ("pc_lock", CHAR * 72),
        ("pc_ucred", POINTER),
        ("p_ruid", ctypes.c_uint32),
        ("p_svuid", INT),
        ("p_rgid", INT),
        ("p_svgid", INT),
        ("p_refcnt", INT),
    ]


class Ucred(ctypes.Structure):
    _fields_ = [("cr_ref", INT), ("cr_uid", INT), ("cr_ngroups", SHORT), ("cr_groups", INT * 16)]


class Vmspace(ctypes.Structure):
    _fields_ = [("dummy", INT), ("dummy2", POINTER), ("dummy3", INT * 5), ("dummy4", POINTER * 3)]


class Eproc(ctypes.Structure):
    _fields_ = [
        ("e_paddr", POINTER),
        ("e_sess", POINTER),
        ("e_pcred", Pcred),
        ("e_ucred", Ucred),
        ("e_vm", Vmspace),
        ("e_ppid", INT),
        ("e_pgid", INT),
        ("e_jobc", SHORT),
        ("e_tdev", INT),
        ("e_tpgid", INT),
        ("e_tsess", POINTER),
        ("e_wmesg", CHAR * 8),
        ("e_xsize", INT),
        ("e_xrssize", SHORT),
        ("e_xccount", SHORT),
        ("e_xswrss", SHORT),
        ("e_flag", INT),
        ("e_login", CHAR * 12),
        ("e_spare", INT * 4),
    ]


class KinfoProc(ctypes.Structure):
    _fields_ = [("kp_proc", ExternProc), ("kp_eproc", Eproc)]


class RusageInfo(ctypes.Structure):
    _fields_ = [
        ("ri_uuid", BYTE * 16),
        ("ri_user_time", LONG),
        ("ri_system_time", LONG),
        ("ri_pkg_idle_wkups", LONG),
        ("ri_interrupt_wkups", LONG),
        ("ri_pageins", LONG),
        ("ri_wired_size", LONG),
        ("ri_resident_size", LONG),
        ("ri_phys_footprint", LONG),
        ("ri_proc_start_abstime", LONG),
        ("ri_proc_exit_abstime", LONG),
    ]


def kinfo(uid: int, parent: int = 1, state: bytes = b"\x02") -> bytes:
    record = KinfoProc()
    ctypes.memset(ctypes.byref(record), 0xA5, ctypes.sizeof(record))
    record.kp_proc.p_starttime = Timeval(1_700_000_000, 123_456)
    record.kp_proc.p_stat = state
    record.kp_eproc.e_pcred.p_ruid = uid
    record.kp_eproc.e_ppid = parent
    return bytes(record)


def test_macos_fields_lie_where_its_headers_put_them() -> None:
    raw = kinfo(501, parent=4711, state=b"\x05")
    assert len(raw) == 648
    assert platform.start_time_of_kinfo(raw) == "1700000000.123456"
    assert platform.run_state_of_kinfo(raw) == "Z"
    assert platform.parent_of_kinfo(raw) == 4711
    assert platform.parent_of_kinfo(b"") is None
    assert platform.parent_of_kinfo(raw[:-1]) is None


def test_macos_records_are_counted_zombies_too() -> None:
    records = [kinfo(501), kinfo(501, state=b"\x05"), kinfo(501)]
    assert platform.count_kinfos(b"".join(records), 501) == 3
    assert platform.count_kinfos(b"".join(records) + kinfo(4_294_967_294), 501) == 0
    assert platform.count_kinfos(kinfo(4_294_967_294), 4_294_967_294) == 1


@given(st.binary(max_size=2_000), st.integers(0, 2**32 - 1))
def test_macos_records_of_another_layout_are_not_believed(raw: bytes, uid: int) -> None:
    count = platform.count_kinfos(raw, uid)
    assert count in (0, len(raw) / 648)


def test_macos_footprint_lies_where_its_header_puts_it() -> None:
    raw = bytes(RusageInfo(ri_resident_size=1, ri_phys_footprint=123 << 20, ri_proc_start_abstime=2))
    assert platform.footprint_of_rusage(raw) == 123 << 20
    assert platform.footprint_of_rusage(b"") is None


# ---------------------------------------------------------------- memory and disk

CALM = b"""some avg10=0.00 avg60=0.12 avg300=0.08 total=1234567
full avg10=0.00 avg60=0.05 avg300=0.02 total=345678
"""


def psi(some: float, full: float) -> bytes:
    return (
        f"some avg10={some:.2f} avg60=99.99 avg300=99.99 total=9\n"
        f"full avg10={full:.2f} avg60=99.99 avg300=99.99 total=9\n"
    ).encode()


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (CALM, 0),
        (psi(9.99, 9.99), 0),
        (psi(10, 0), 1),
        (psi(100, 19.99), 1),
        (psi(20, 20), 2),
        (psi(100, 100), 2),
        (b"some avg10=12.50 avg60=0.00 avg300=0.00 total=0\n", 1),
        (b"", None),
        (b"some avg60=1.00 total=0\n", None),
        (b"some avg10= avg60=1.00\n", None),
    ],
)
def test_pressure_by_the_last_ten_seconds(text: bytes, level: int | None) -> None:
    assert platform.level_of_psi(text) == level


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_more_pressure_is_never_a_lower_level(some: float, full: float, more: float) -> None:
    low, high = platform.level_of_psi(psi(some, full)), platform.level_of_psi(psi(some + more, full + more))
    assert low is not None
    assert high is not None
    assert low <= high


@given(st.binary())
def test_no_pressure_file_can_fail_a_look(text: bytes) -> None:
    assert platform.level_of_psi(text) in (None, 0, 1, 2)


@pytest.mark.parametrize(
    ("raw", "level"),
    [
        ("01000000", 0),
        ("02000000", 1),
        ("04000000", 2),
        ("0400000000000000", 2),
        ("03000000", None),
        ("", None),
    ],
)
def test_macos_pressure_level(raw: str, level: int | None) -> None:
    assert platform.level_of_sysctl(bytes.fromhex(raw)) == level


def test_a_sample_of_this_machine(tmp_path: Path) -> None:
    found = load.sample(str(tmp_path))
    assert found.user_procs is not None
    assert found.user_procs >= 1
    assert found.free_mb is not None
    assert found.free_mb > 0
    assert found.free_disk_mb is not None
    assert abs(found.free_disk_mb - shutil.disk_usage(tmp_path).free / 2**20) < 1_000
    if platform.LINUX:
        known = os.access("/proc/pressure/memory", os.R_OK)
        assert found.pressure in ((0, 1, 2) if known else (None,))
        assert found.tasks is not None
        assert found.tasks.in_use > 0


def test_a_folder_that_is_gone_has_no_disk(tmp_path: Path) -> None:
    assert load.sample(str(tmp_path / "none")).free_disk_mb is None


@needs_linux
def test_without_descriptors_nothing_is_known_and_nothing_fails() -> None:
    code = """
import os, resource
from clawq.host import load
load.sample("/")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open("/", os.O_RDONLY)
except OSError:
    print(load.sample("/")[:3])
"""
    assert in_child(code) == "(None, None, None)"


# ---------------------------------------------------------------- the account's ceiling


@needs_linux
def test_a_lowered_soft_limit_is_the_ceiling() -> None:
    code = """
import resource
from clawq.host import ceiling, load
before = ceiling.process_ceiling()
resource.setrlimit(resource.RLIMIT_NPROC, (40, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
print(before > 40, ceiling.process_ceiling(), load.default_max_user_procs())
"""
    assert in_child(code) == "True 40 30"


def test_the_default_limit_is_three_quarters_of_the_ceiling() -> None:
    lowest = ceiling.process_ceiling()
    assert lowest is not None
    assert load.default_max_user_procs() == int(lowest * 0.75)


def test_an_unlimited_account_is_bounded_by_the_machine_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(ceiling, "_cgroup_folders", list)
    if platform.LINUX:
        pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
        threads = int(Path("/proc/sys/kernel/threads-max").read_text())
        assert ceiling.process_ceiling() == min(pid_max, threads)
    monkeypatch.setattr(platform, "LINUX", False)
    monkeypatch.setattr(platform, "max_procs_per_uid", lambda: None)
    assert ceiling.process_ceiling() is None
    assert load.default_max_user_procs() is None
    monkeypatch.setattr(platform, "max_procs_per_uid", lambda: 2_666)
    assert load.default_max_user_procs() == 1_999


@needs_linux
def test_the_lowest_pids_max_of_all_ancestors_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    folders[0].mkdir(parents=True)
    for folder, most, current in zip(folders, ("max", "20", "30"), ("12", "14", "29"), strict=True):
        (folder / "pids.max").write_text(most + "\n")
        (folder / "pids.current").write_text(current + "\n")
    monkeypatch.setattr(ceiling, "_cgroup_folders", lambda: [str(folder) for folder in folders])
    assert ceiling.process_ceiling() == 20
    # Of 20 three quarters are 15, of 30 they are 22: the wider one leaves less room.
    assert ceiling.nearest(1) == (29, 22)


def test_only_linux_counts_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "LINUX", False)
    assert ceiling.nearest(12) is None


SYSTEMD = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/clawq.service\n"
UNIFIED = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
DOCKER_V1 = "812 800 0:30 /docker/4f2a /sys/fs/cgroup/pids ro,nosuid master:14 - cgroup cgroup rw,pids\n"


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "folders"),
    [
        (
            SYSTEMD,
            UNIFIED,
            [
                "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/clawq.service",
                "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice",
                "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service",
                "/sys/fs/cgroup/user.slice/user-1000.slice",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup",
            ],
        ),
        ("0::/\n", UNIFIED, ["/sys/fs/cgroup"]),
        # Outside of what the namespace shows.
        ("0::/../other\n", UNIFIED, ["/sys/fs/cgroup"]),
        (
            "9:name=systemd:/\n8:pids:/jobs/x\n4:memory:/m\n0::/\n",
            HYBRID,
            [
                "/sys/fs/cgroup/pids/jobs/x",
                "/sys/fs/cgroup/pids/jobs",
                "/sys/fs/cgroup/pids",
                "/sys/fs/cgroup/unified",
            ],
        ),
        ("8:cpuset,pids:/docker/4f2a/in\n", DOCKER_V1, ["/sys/fs/cgroup/pids/in", "/sys/fs/cgroup/pids"]),
        ("8:pids:/docker/4f2a5\n", DOCKER_V1, ["/sys/fs/cgroup/pids"]),
        ("0::/a\n", r"29 23 0:26 / /mnt/c\040g rw - cgroup2 cgroup2 rw" + "\n", ["/mnt/c g/a", "/mnt/c g"]),
        ("0::/a:b\n", UNIFIED, ["/sys/fs/cgroup/a:b", "/sys/fs/cgroup"]),
        (SYSTEMD, "", []),
        ("", UNIFIED, []),
    ],
)
def test_where_a_cgroup_may_bound_us(cgroup: str, mountinfo: str, folders: list[str]) -> None:
    assert ceiling.pids_folders(cgroup, mountinfo) == folders


names = st.lists(
    st.text(alphabet="ab.:-@ ", min_size=1).filter(lambda name: name not in (".", "..")), max_size=6
)


@given(names, names)
def test_every_ancestor_is_asked_and_nothing_outside_the_mount(root: list[str], inside: list[str]) -> None:
    shown, group = "/" + "/".join(root), "/" + "/".join(root + inside)
    mountinfo = f"29 23 0:26 {shown.replace(' ', chr(92) + '040')} /cg rw - cgroup2 cgroup2 rw\n"
    folders = ceiling.pids_folders(f"0::{group}\n", mountinfo)
    assert folders == [str(Path("/cg", *inside[:depth])) for depth in range(len(inside), -1, -1)]


@given(st.text(), st.text())
def test_no_such_text_can_fail_a_look(cgroup: str, mountinfo: str) -> None:
    ceiling.pids_folders(cgroup, mountinfo)
    ceiling.tasks_in_loadavg(mountinfo)


def test_all_threads_of_the_machine() -> None:
    assert ceiling.tasks_in_loadavg("12.04 7.64 5.69 3/441 27369\n") == 441
    assert ceiling.tasks_in_loadavg("") is None
