"""The seccomp filter of fresh boxes: an allow-list, as a BPF program for `bwrap --seccomp`.

What is not named fails with EPERM: sockets, ptrace, namespaces, mounts, keys, bpf, perf, io_uring,
files in memory, shared memory and queues among it. A call of another architecture ends the process.
Children in persistent boxes have a filter of their own, much smaller
(`services/graders/ocaml/front/stubs.c`). Numbers: Linux UAPI headers, asm/unistd_64.h and
asm-generic.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from functools import cache

from gradus.errors import SandboxFault

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine -> (AUDIT_ARCH_*, column of ALLOWED)."""

_LD_ABS = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JEQ = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JGE = 0x35
_JSET = 0x45
_RET = 0x06
_NR, _ARCH, _ARG0, _ARG1 = (
    0,
    4,
    16,
    24,
)  # offsets in struct seccomp_data; little-endian low halves of the arguments

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EPERM = 0x00050001
_ENOSYS = 0x00050026

_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS,UTS,IPC,USER,PID,NET,CGROUP} and CLONE_NEWTIME
_SOCKETPAIR = (53, 199)
"""Its number on x86-64 and on aarch64."""
_AF_UNIX = 1
_SCHED_SETSCHEDULER = (144, 119)
_SCHED_OTHER = 0
_TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: input into the controlling terminal


@cache
def build_filter_program(machine: str | None = None, *, socket_pairs: bool = False) -> bytes:
    """Return the filter for `machine` (this one), as an array of struct sock_filter; with
    `socket_pairs`, it allows pairs of Unix sockets. Raises SandboxFault for others."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        machines = ", ".join(_ARCHITECTURES)
        raise SandboxFault(f"the seccomp filter knows {machines}, not {machine}", retryable=False)
    arch, column = _ARCHITECTURES[machine]
    instructions = _iter_instructions(arch, column, socket_pairs=socket_pairs)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def build_permissive_filter() -> bytes:
    """Return a filter that filters nothing."""
    return struct.pack("<HBBI", _RET, 0, 0, _ALLOW)


def _iter_instructions(
    arch: int, column: int, *, socket_pairs: bool
) -> Iterator[tuple[int, int, int, int]]:
    """(code, jump if true, jump if false, constant) each; jumps count instructions to skip."""
    yield from ((_LD_ABS, 0, 0, _ARCH), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL))
    yield from (
        (_LD_ABS, 0, 0, _NR),
        (_JGE, 0, 1, 0x40000000),
        (_RET, 0, 0, _KILL),
    )  # x32 calls on x86-64
    numbers = {name: row[column] for name, row in ALLOWED.items()}
    for name, number in numbers.items():
        if number is not None and name not in ("clone", "clone3", "ioctl"):
            yield from ((_JEQ, 0, 1, number), (_RET, 0, 0, _ALLOW))
    if socket_pairs:  # unnamed, and sendmsg is not allowed: a pipe in two directions, no more
        yield from ((_JEQ, 0, 4, _SOCKETPAIR[column]), (_LD_ABS, 0, 0, _ARG0))
        yield from ((_JEQ, 0, 1, _AF_UNIX), (_RET, 0, 0, _ALLOW), (_RET, 0, 0, _EPERM))
    # what is the default may be set: mono warns on standard output where it may not
    yield from ((_JEQ, 0, 4, _SCHED_SETSCHEDULER[column]), (_LD_ABS, 0, 0, _ARG1))
    yield from ((_JEQ, 0, 1, _SCHED_OTHER), (_RET, 0, 0, _ALLOW), (_RET, 0, 0, _EPERM))
    # clone3 hides its flags behind a pointer: "no such call" makes libraries use clone
    yield from ((_JEQ, 0, 1, numbers["clone3"] or 0), (_RET, 0, 0, _ENOSYS))
    yield from (
        (_JEQ, 0, 4, numbers["clone"] or 0),
        (_LD_ABS, 0, 0, _ARG0),
        (_JSET, 0, 1, _NEW_NAMESPACES),
    )
    yield from ((_RET, 0, 0, _EPERM), (_RET, 0, 0, _ALLOW))
    yield from ((_JEQ, 0, 5, numbers["ioctl"] or 0), (_LD_ABS, 0, 0, _ARG1))
    yield from ((_JEQ, 1, 0, _TERMINAL_TRICKS[0]), (_JEQ, 0, 1, _TERMINAL_TRICKS[1]))
    yield from ((_RET, 0, 0, _EPERM), (_RET, 0, 0, _ALLOW))
    yield (_RET, 0, 0, _EPERM)


_TABLE = """
    access 21 -, alarm 37 -, arch_prctl 158 -, brk 12 214, capget 125 90, capset 126 91,
    chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114, clock_gettime 228 113,
    clock_nanosleep 230 115, clone 56 220, clone3 435 435, close 3 57, close_range 436 436,
    copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -,
    epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_wait 232 -, eventfd 284 -,
    eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94,
    faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50,
    fchmod 91 52, fchmodat 268 53, fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83,
    fgetxattr 193 10, flock 73 32, fork 57 -, fstat 5 80, fstatfs 138 44, fsync 74 82,
    ftruncate 77 46, futex 202 98, futimesat 261 -, get_robust_list 274 100, getcpu 309 168,
    getcwd 79 17, getdents 78 -, getdents64 217 61, getegid 108 177, geteuid 107 175,
    getgid 104 176, getgroups 115 158, getitimer 36 102, getpgid 121 155, getpgrp 111 -,
    getpid 39 172, getppid 110 173, getpriority 140 141, getrandom 318 278, getresgid 120 150,
    getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, gettid 186 178,
    gettimeofday 96 169, getuid 102 174, getxattr 191 8, inotify_init1 294 26, ioctl 16 29,
    kill 62 129, lchown 94 -, lgetxattr 192 9, link 86 -, linkat 265 37, listxattr 194 11,
    lseek 8 62, lstat 6 -, madvise 28 233, membarrier 324 283, mincore 27 232, mkdir 83 -,
    mkdirat 258 34, mlock 149 228, mmap 9 222, mprotect 10 226, mremap 25 216, msync 26 227,
    munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56, openat2 437 437,
    pause 34 -, pidfd_open 434 434, pidfd_send_signal 424 424, pipe 22 -, pipe2 293 59, poll 7 -,
    ppoll 271 73, prctl 157 167, pread64 17 67, preadv 295 69, preadv2 327 286, prlimit64 302 261,
    pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287, read 0 63,
    readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, rename 82 -, renameat 264 38,
    renameat2 316 276, restart_syscall 219 128, rmdir 84 -, rseq 334 293, rt_sigaction 13 134,
    rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139,
    rt_sigsuspend 130 133, rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240,
    sched_get_priority_max 146 125, sched_get_priority_min 147 126, sched_getaffinity 204 123,
    sched_getattr 315 275, sched_getparam 143 121, sched_getscheduler 145 120,
    sched_setaffinity 203 122, sched_yield 24 124, select 23 -, sendfile 40 71,
    set_robust_list 273 99, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151,
    setgid 106 144, setgroups 116 159, setitimer 38 103, setpgid 109 154, setpriority 141 140,
    setregid 114 143, setresgid 119 149, setresuid 117 147, setreuid 113 145, setrlimit 160 164,
    setsid 112 157, setuid 105 146, sigaltstack 131 132, splice 275 76, stat 4 -, statfs 137 43,
    statx 332 291, symlink 88 -, symlinkat 266 36, sync_file_range 277 84, sysinfo 99 179,
    tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107, timer_delete 226 111,
    timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110, timerfd_create 283 85,
    timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153, tkill 200 130, truncate 76 45,
    umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88,
    utimes 235 -, vfork 58 -, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""
"""`name number-on-x86-64 number-on-aarch64`, where `-` is a call that does not exist there."""
ALLOWED: dict[str, tuple[int, int | None]] = {
    name: (int(intel), None if arm == "-" else int(arm))
    for name, intel, arm in map(str.split, _TABLE.split(","))
}
"""Call -> its number on x86-64 and on aarch64, where old calls do not exist."""
