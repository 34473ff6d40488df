/* What OCaml's Unix module lacks: a memory limit and a seccomp filter for a process that is about to meet a hostile answer.
   Allow-lists: everything that is not named fails with EPERM, another architecture's calls end the process. Part of the
   front and of the runner, and a library of its own (dllgradus.so) for programs that ocamlrun runs. */

#define _GNU_SOURCE
#define CAML_INTERNALS
#define CAML_NAME_SPACE
#include <caml/version.h>
#include <caml/address_class.h>
#include <caml/alloc.h>
#include <caml/bigarray.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/fail.h>
#include <caml/prims.h>
#include <caml/domain.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the seccomp filter knows x86-64 and aarch64 only"
#endif

/* Memory, time, signals' return, and reading and writing what is open already. No futex: who is alone needs none, and
   could only wait with it for ever. */
static const int computing[] = {
    __NR_read, __NR_write, __NR_writev, __NR_close, __NR_lseek, __NR_fstat, __NR_mmap, __NR_munmap, __NR_mremap,
    __NR_brk, __NR_mprotect, __NR_madvise, __NR_exit, __NR_exit_group, __NR_rt_sigreturn, __NR_sigaltstack,
    __NR_clock_gettime, __NR_clock_getres, __NR_gettimeofday, __NR_times, __NR_getrusage, __NR_getpid,
    __NR_getrandom, __NR_sched_yield,
};
/* A compiler also looks for interfaces: opening is for reading only, see below. It has a timer for each answer. */
static const int looking[] = {
    __NR_newfstatat, __NR_faccessat, __NR_readlinkat, __NR_getcwd, __NR_rt_sigaction, __NR_rt_sigprocmask,
    __NR_getdents64, __NR_fcntl, __NR_setitimer,
#if defined(__x86_64__)
    __NR_stat, __NR_lstat, __NR_access, __NR_readlink,
#endif
};

/* what a program with packages has no need of once it runs */
static const int opening[] = {
    __NR_openat, __NR_execve, __NR_execveat, 437 /* openat2 */,
#if defined(__x86_64__)
    __NR_open, __NR_creat,
#endif
};

#define COUNT(list) ((int)(sizeof(list) / sizeof(list[0])))
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)

static int answer_each(struct sock_filter *f, int n, const int *list, int count, unsigned int what)
{
    for (int i = 0; i < count; i++) {
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, list[i], 0, 1);
        f[n++] = (struct sock_filter)RETURN(what);
    }
    return n;
}

static int allow(struct sock_filter *f, int n, const int *list, int count)
{
    return answer_each(f, n, list, count, SECCOMP_RET_ALLOW);
}

static int begin(struct sock_filter *f)
{
    int n = 0;
    f[n++] = (struct sock_filter)LOAD(arch);
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    f[n++] = (struct sock_filter)LOAD(nr);
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32 */
    f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    return n;
}

static int install(struct sock_filter *f, int n)
{
    struct sock_fprog program = {.len = (unsigned short)n, .filter = f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int confine_to_computing(int may_open)
{
    struct sock_filter f[256];
    int n = begin(f);
    n = allow(f, n, computing, COUNT(computing));
    if (may_open) {
        n = allow(f, n, looking, COUNT(looking));
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 4);
        f[n++] = (struct sock_filter)LOAD(args[2]);
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,
            O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 1, 0);
        f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
        f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ERRNO | EPERM);
    }
    f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ERRNO | EPERM);
    return install(f, n);
}

#define NO_SECCOMP "seccomp is not available here"

CAMLprim value gradus_confine(value may_open)
{
    if (confine_to_computing(Bool_val(may_open)))
        caml_failwith(NO_SECCOMP);
    return Val_unit;
}

/* For a program with packages, on top of its box's filter: processes, threads and clocks, but nothing is opened any more.
   The timer that ends the program stays what it is. */
static int confine_with_packages(void)
{
    struct sock_filter f[64];
    int n = answer_each(f, begin(f), opening, COUNT(opening), SECCOMP_RET_ERRNO | EPERM);
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_setitimer, 0, 3);
    f[n++] = (struct sock_filter)LOAD(args[0]);
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ITIMER_PROF, 0, 1);
    f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ERRNO | EPERM);
    f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    return install(f, n);
}

/* What OCaml leaves as it finds it: bytes, floats and bigarrays that nobody has written yet would show an answer what was
   there before, such as constants of the tests, or answers of others. Bytecode calls primitives through a table; from here on
   the table has ones that clear what they make. */
extern struct ext_table caml_prim_table __attribute__((weak)); /* native programs have none */
extern value caml_create_bytes(value), caml_floatarray_create(value), caml_ba_create(value, value, value);
extern value caml_create_string(value) __attribute__((weak));
extern value caml_make_float_vect(value) __attribute__((weak));
extern value caml_array_create_float(value) __attribute__((weak));

/* The kernel gives whole pages anew for less than it costs to write them, and takes none that were never touched. */
static void clear(void *memory, size_t size)
{
    uintptr_t page = 4095, from = (uintptr_t)memory, till = from + size, first = (from + page) & ~page, last = till & ~page;
    if (size >= (1 << 17) && madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
        memset((void *)from, 0, first - from);
        memset((void *)last, 0, till - last);
    } else
        memset(memory, 0, size);
}

static value clear_bytes(value length)
{
    value made = caml_create_bytes(length);
    clear(Bytes_val(made), Long_val(length));
    return made;
}

static value clear_floats(value length)
{
    value made = caml_floatarray_create(length);
    clear((void *)made, Bsize_wsize(Wosize_val(made)));
    return made;
}

static value clear_bigarray(value kind, value layout, value dimensions)
{
    value made = caml_ba_create(kind, layout, dimensions);
    clear(Caml_ba_data_val(made), caml_ba_byte_size(Caml_ba_array_val(made)));
    return made;
}

CAMLprim value gradus_clear_new_memory(value unit)
{
    struct { void *made, *cleared; } replaced[] = {
        {caml_create_bytes, clear_bytes}, {caml_create_string, clear_bytes}, {caml_floatarray_create, clear_floats},
        {caml_make_float_vect, clear_floats}, {caml_array_create_float, clear_floats}, {caml_ba_create, clear_bigarray},
    };
    for (int i = 0; i < caml_prim_table.size; i++)
        for (size_t j = 0; j < COUNT(replaced); j++)
            if (replaced[j].made && caml_prim_table.contents[i] == replaced[j].made) {
                caml_prim_table.contents[i] = replaced[j].cleared;
                break;
            }
    return unit;
}

/* What the runner does with its children, for a program in a box of its own. */
CAMLprim value gradus_seal(value cpu_ms, value packages)
{
    struct itimerval limit = {{0, 0}, {Long_val(cpu_ms) / 1000, Long_val(cpu_ms) % 1000 * 1000}};
    int errors = fcntl(2, F_DUPFD, 4), null = open("/dev/null", O_RDWR);
    if (errors < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        caml_failwith("descriptors could not be closed");
    if (null > 2)
        close(null);
    prctl(PR_SET_DUMPABLE, 0);
    gradus_clear_new_memory(Val_unit);
    if (setitimer(ITIMER_PROF, &limit, NULL) || (Bool_val(packages) ? confine_with_packages() : confine_to_computing(0))) {
        dup2(errors, 2); /* the last words */
        caml_failwith(NO_SECCOMP);
    }
    close(errors);
    return Val_unit;
}

/* ---------------------------------------------------------------------------------------------- beside the referee */

/* Straight from and to the memory that is named: what passes through a buffer would stay there for the next child. */
CAMLprim value gradus_read(value fd, value bytes, value from, value length)
{
    ssize_t n;
    do
        n = read(Int_val(fd), Bytes_val(bytes) + Long_val(from), Long_val(length));
    while (n < 0 && errno == EINTR);
    return Val_long(n < 0 ? 0 : n);
}

/* Whether all was written. */
CAMLprim value gradus_write(value fd, value bytes, value from, value length)
{
    const char *next = (const char *)Bytes_val(bytes) + Long_val(from);
    for (ssize_t n, left = Long_val(length); left > 0; next += n, left -= n)
        if ((n = write(Int_val(fd), next, left)) < 0) {
            if (errno != EINTR)
                return Val_false;
            n = 0;
        }
    return Val_true;
}

static void interrupted(int signal)
{
    (void)signal;
}

/* From now on [gradus_read_from] looks after its process every tenth of a second. */
CAMLprim value gradus_watch(value on)
{
    struct itimerval every = {{0, 100000 * Bool_val(on)}, {0, 100000 * Bool_val(on)}};
    struct sigaction action = {.sa_handler = interrupted};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    return Val_unit;
}

/* Hexadecimal digits for [bytes], which nobody can foresee. */
CAMLprim value gradus_draw(value bytes)
{
    unsigned char drawn[256], *to = Bytes_val(bytes);
    for (size_t at = 0, length = caml_string_length(bytes); at < length; at++) {
        if (at % 512 == 0 && getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
            caml_failwith("there are no random numbers");
        to[at] = "0123456789abcdef"[drawn[at % 512 / 2] >> at % 2 * 4 & 15];
    }
    return Val_unit;
}

CAMLprim value gradus_index(value bytes, value c, value from, value till)
{
    unsigned char *start = Bytes_val(bytes);
    unsigned char *found = memchr(start + Long_val(from), Int_val(c), Long_val(till) - Long_val(from));
    return found ? Val_long(found - start) : till;
}

/* As [gradus_read], to the end of [bytes]. The end, too, once a process has used no CPU for 3 seconds: then it waits for what does not come. One
   that is merely starved gets some in that time. */
CAMLprim value gradus_read_from(value pid, value fd, value bytes, value from)
{
    struct timespec used, before = {-1, 0};
    clockid_t clock;
    for (int idle = 0; idle < 30;) {
        ssize_t n = read(Int_val(fd), Bytes_val(bytes) + Long_val(from), caml_string_length(bytes) - Long_val(from));
        if (n >= 0 || errno != EINTR)
            return Val_long(n < 0 ? 0 : n);
        if (clock_getcpuclockid(Int_val(pid), &clock) || clock_gettime(clock, &used))
            continue;
        idle = used.tv_sec == before.tv_sec && used.tv_nsec == before.tv_nsec ? idle + 1 : 0;
        before = used;
    }
    return Val_long(0);
}

/* A child without standard input and report: (0, what it is told, where it speaks); for the parent its process, what it
   says, where it listens. */
CAMLprim value gradus_part(value unit)
{
    int up[2], down[2];
    if (pipe(up) || pipe(down))
        caml_failwith("there are no pipes");
    pid_t pid = fork();
    if (pid < 0)
        caml_failwith("there is no second process");
    signal(SIGPIPE, SIG_IGN);
    close(pid ? up[1] : up[0]);
    close(pid ? down[0] : down[1]);
    if (pid == 0) {
#if OCAML_VERSION >= 50000
        caml_atfork_hook(); /* the lock of the domain belongs to the parent */
#endif
        close(0);
        close(3);
    }
    value parted = caml_alloc_small(3, 0);
    Field(parted, 0) = Val_int(pid);
    Field(parted, 1) = Val_int(pid ? up[0] : down[0]);
    Field(parted, 2) = Val_int(pid ? down[1] : up[1]);
    return parted;
}

/* Ends as the child ended. */
CAMLprim value gradus_end_as(value pid, value stop)
{
    int status = 0;
    if (Bool_val(stop))
        kill(Int_val(pid), SIGKILL);
    while (waitpid(Int_val(pid), &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* Address space that answers need not share: what the minor heap has beyond 8 MB. OCaml 5 sets one aside for each of the 128
   domains that there could be. */
static rlim_t reserved(void)
{
#if OCAML_VERSION >= 50000
    return caml_minor_heaps_end - caml_minor_heaps_start;
#else
    rlim_t size = (char *)Caml_state_field(young_end) - (char *)Caml_state_field(young_start), usual = (rlim_t)8 << 20;
    return size > usual ? size - usual : 0;
#endif
}

CAMLprim value gradus_limit(value memory_mb, value cpu_s)
{
    rlim_t most = ((rlim_t)Long_val(memory_mb) << 20) + reserved();
    struct rlimit memory = {most, most};
    struct rlimit cpu = {(rlim_t)Long_val(cpu_s), (rlim_t)Long_val(cpu_s)};
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_AS, &memory) || setrlimit(RLIMIT_CPU, &cpu) || setrlimit(RLIMIT_CORE, &none)
        || setrlimit(RLIMIT_FSIZE, &none))
        caml_failwith("a limit could not be set");
    prctl(PR_SET_DUMPABLE, 0);
    return Val_unit;
}
