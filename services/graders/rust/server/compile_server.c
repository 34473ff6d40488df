/* Makes an unmodified rustc or clippy-driver serve many compilations: preloaded into it, this takes over once the
   dynamic linker has mapped and relocated the compiler, and forks a child per request that goes on to the compiler's
   own main. What one answer does to the compiler is gone with the child, and so is every file and process it leaves.
   Runs as PID 1 of a box and nowhere else, because it ends its children with kill(-1).

   A request is u32 numbers in the machine's order and strings (u32 length, bytes, a NUL that the length leaves out):
     size of what follows; cpu_s; wall_ms; then three lists (u32 count, strings): arguments, environment, and files as
     path and content in turn. The first file's folder is the compiler's working directory. It writes to PRODUCT.
   The reply is "<length> <how> <code> <cpu us> <length of messages>\n", messages and product; how: exit, signal, wall. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACE "/tmp"
#define PRODUCT PLACE "/out"
#define MESSAGES PLACE "/messages"
enum { REQUEST = 0, REPLY = 1, LIFE = 255, STRINGS = 1 << 18, STEP = 1 << 20 };

typedef int (*main_of)(int, char **, char **);
typedef int (*start_of)(main_of, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static void give_up(const char *why) {
  dprintf(2, "compile server: %s: %s\n", why, strerror(errno));
  _exit(70);
}

/* ------------------------------------------------------------------------------------------------------ request */

typedef struct {
  uint32_t count;
  char *texts[STRINGS];
  uint32_t lengths[STRINGS];
} strings;

static char *buffer;
static size_t room;
static strings arguments, environment, files;
static uint32_t cpu_s, wall_ms;

static void read_all(void *into, size_t wanted) {
  for (size_t had = 0; had < wanted;) {
    ssize_t got = read(REQUEST, (char *)into + had, wanted - had);
    if (got == 0 && had == 0)
      _exit(0);
    if (got <= 0 && errno != EINTR)
      give_up("the request broke off");
    had += got > 0 ? (size_t)got : 0;
  }
}

static uint32_t number(char **at, char *end) {
  uint32_t value;
  if (end - *at < (ptrdiff_t)sizeof value)
    give_up("the request is cut short");
  memcpy(&value, *at, sizeof value);
  *at += sizeof value;
  return value;
}

static void list(strings *into, char **at, char *end) {
  if ((into->count = number(at, end)) >= STRINGS)
    give_up("too many strings");
  for (uint32_t n = 0; n < into->count; n++) {
    uint32_t length = into->lengths[n] = number(at, end);
    if (end - *at <= (ptrdiff_t)length || (*at)[length])
      give_up("a string of the request is cut short");
    into->texts[n] = *at;
    *at += length + 1;
  }
  into->texts[into->count] = NULL;
}

static void read_request(void) {
  uint32_t size;
  read_all(&size, sizeof size);
  if (size > room) { /* of its own mapping: children get no copy of a heap that it made larger */
    if (buffer)
      munmap(buffer, room);
    room = (size + STEP) & ~(size_t)(STEP - 1);
    buffer = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
      give_up("no memory for the request");
  }
  read_all(buffer, size);
  char *at = buffer, *end = buffer + size;
  cpu_s = number(&at, end);
  wall_ms = number(&at, end);
  list(&arguments, &at, end);
  list(&environment, &at, end);
  list(&files, &at, end);
  if (files.count < 2 || files.count % 2)
    give_up("no files");
}

/* -------------------------------------------------------------------------------------------------------- files */

static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    if (mkdir(path, 0755) && errno != EEXIST)
      give_up(path);
    *slash = '/';
  }
}

static void write_file(char *path, const char *content, size_t length) {
  make_folders(path);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
  if (fd < 0)
    give_up(path);
  for (size_t had = 0; had < length;) {
    ssize_t put = write(fd, content + had, length - had);
    if (put <= 0)
      give_up(path);
    had += (size_t)put;
  }
  close(fd);
}

static void empty(int folder) {
  DIR *entries = fdopendir(folder);
  if (!entries)
    give_up("cannot list files");
  for (struct dirent *entry; (entry = readdir(entries));) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..") || !unlinkat(dirfd(entries), name, 0))
      continue;
    int below = openat(dirfd(entries), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
      give_up(name);
    empty(below);
    if (unlinkat(dirfd(entries), name, AT_REMOVEDIR))
      give_up(name);
  }
  closedir(entries);
}

/* --------------------------------------------------------------------------------------------------------- heap */

/* The compiler's allocator gets its memory here, in huge pages where the kernel lets programs ask for them: small ones
   are a third of a small answer's CPU. The server reserves the heap and writes nothing there, so that no child finds a
   page to copy. A box has no /proc, and without it the allocator takes reserved memory into use with a system call for
   each piece: here all of it is usable at once. */
enum { HUGE = 1 << 21 };
static const size_t HEAP = (size_t)512 << 20;
static char *heap;
static size_t given;
static int in_child;
static volatile int unmapped;

static void reserve_heap(void) {
  char *all = mmap(NULL, HEAP + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED)
    return;
  heap = (char *)(((uintptr_t)all + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
  madvise(heap, HEAP, MADV_HUGEPAGE);
}

void *mmap(void *wanted, size_t length, int access, int flags, int fd, off_t offset) {
  if (in_child && heap && (flags & ~(MAP_NORESERVE | MAP_FIXED)) == (MAP_PRIVATE | MAP_ANONYMOUS)) {
    if (!wanted && length >= HUGE) {
      size_t size = length > HEAP ? HEAP + HUGE : (length + HUGE - 1) & ~(size_t)(HUGE - 1);
      size_t at = __atomic_fetch_add(&given, size, __ATOMIC_RELAXED);
      if (at + size <= HEAP)
        return heap + at;
      if (at < HEAP) { /* the first request that does not fit: what is left would count as used memory */
        unmapped = 1;
        munmap(heap + at, HEAP - at);
      }
    } else if ((flags & MAP_FIXED) && (char *)wanted >= heap && (char *)wanted < heap + HEAP) {
      if (access == (PROT_READ | PROT_WRITE) && !unmapped)
        return wanted;
      unmapped = 1; /* from here on, memory in this place may be another's, or given back */
    }
  }
  return (void *)syscall(SYS_mmap, wanted, length, access, flags, fd, offset);
}

/* -------------------------------------------------------------------------------------------------------- child */

static void enter(void) {
  int nothing = open("/dev/null", O_RDWR), said = open(MESSAGES, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (nothing < 0 || said < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(said, 2) < 0)
    _exit(71);
  struct rlimit limit = {cpu_s, cpu_s + 1}; /* ended by SIGXCPU, which says why */
  char *folder = files.texts[0];
  *strrchr(folder, '/') = 0;
  if (close_range(3, LIFE - 1, 0) || setrlimit(RLIMIT_CPU, &limit) || chdir(folder))
    _exit(71);
  in_child = 1;
  clearenv();
  for (uint32_t n = 0; n < environment.count; n++)
    putenv(environment.texts[n]);
}

static uint64_t used_us(void) {
  struct rusage own, of_children;
  getrusage(RUSAGE_SELF, &own);
  getrusage(RUSAGE_CHILDREN, &of_children);
  struct timeval *all[] = {&own.ru_utime, &own.ru_stime, &of_children.ru_utime, &of_children.ru_stime};
  uint64_t sum = 0;
  for (int n = 0; n < 4; n++)
    sum += (uint64_t)all[n]->tv_sec * 1000000 + (uint64_t)all[n]->tv_usec;
  return sum;
}

/* Ends the child's processes and says how it ended itself; its end of `life` closes when it does. */
static const char *end_of(pid_t child, int life, int *code) {
  struct pollfd watched = {life, POLLIN, 0};
  int ended = poll(&watched, 1, (int)wall_ms), status = 0;
  kill(-1, SIGKILL);
  for (pid_t one; (one = wait(&status)) > 0 || errno == EINTR;)
    if (one == child)
      *code = status;
  if (!ended)
    return "wall";
  int signal = WIFSIGNALED(*code);
  *code = signal ? WTERMSIG(*code) : WEXITSTATUS(*code);
  return signal ? "signal" : "exit";
}

/* -------------------------------------------------------------------------------------------------------- reply */

static void put_all(const char *bytes, size_t length) {
  for (size_t had = 0; had < length;) {
    ssize_t put = write(REPLY, bytes + had, length - had);
    if (put <= 0)
      give_up("the reply broke off");
    had += (size_t)put;
  }
}

static int opened(const char *path, size_t *length) {
  struct stat about;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  *length = fd >= 0 && !fstat(fd, &about) && S_ISREG(about.st_mode) ? (size_t)about.st_size : 0;
  return fd;
}

static void put_file(int fd, size_t length) {
  static char chunk[1 << 16];
  for (ssize_t got; length > 0; length -= (size_t)got) {
    if ((got = read(fd, chunk, length < sizeof chunk ? length : sizeof chunk)) <= 0)
      give_up("a file became shorter");
    put_all(chunk, (size_t)got);
  }
  if (fd >= 0)
    close(fd);
}

static void reply(const char *how, int code, uint64_t cpu_us) {
  size_t said, made;
  int messages = opened(MESSAGES, &said), product = opened(PRODUCT, &made);
  char line[128];
  int length = snprintf(line, sizeof line, "%zu %s %d %llu %zu\n", said + made, how, code, (unsigned long long)cpu_us, said);
  put_all(line, (size_t)length);
  put_file(messages, said);
  put_file(product, made);
}

/* ------------------------------------------------------------------------------------------------------- server */

/* Returns in children only. */
static void serve(void) {
  put_all("0 ready\n", 8);
  for (;;) {
    read_request();
    uint64_t before = used_us();
    for (uint32_t n = 0; n < files.count; n += 2)
      write_file(files.texts[n], files.texts[n + 1], files.lengths[n + 1]);
    int life[2], code = 0;
    if (pipe2(life, O_CLOEXEC))
      give_up("no pipe");
    pid_t child = fork();
    if (child < 0)
      give_up("no child");
    if (child == 0) {
      /* the pipe's end is all that it keeps of ours, where no descriptor of the compiler's will be */
      if (dup3(life[1], LIFE, O_CLOEXEC) < 0)
        _exit(71);
      enter();
      return;
    }
    close(life[1]);
    const char *how = end_of(child, life[0], &code);
    close(life[0]);
    reply(how, code, used_us() - before);
    int folder = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
      give_up(PLACE);
    empty(folder);
  }
}

int __libc_start_main(main_of main, int, char **, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
  start_of start = (start_of)dlsym(RTLD_NEXT, "__libc_start_main");
  if (getpid() != 1)
    give_up("this is no box");
  unsetenv("LD_PRELOAD");
  reserve_heap();
  serve();
  return start(main, (int)arguments.count, arguments.texts, init, fini, rtld_fini, stack_end);
}
