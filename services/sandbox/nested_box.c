/* Runs many commands in one standing box, each in a box of its own within it: fresh PID, IPC and mount namespaces, a
   user of its own, no capability, the filter of system calls. What costs most to make, the network namespace and the
   box's root, is made once and cannot be written to. Runs as PID 1 of a box and nowhere else.

   Descriptor 0 is a socket of packets. At first this sends "ready". A packet "r" starts a command. It carries five
   descriptors: the request, then what are the command's 0, 1, 2 and 3. A packet "k" kills it. When it has ended, and
   every process that it left, this sends a `struct reply`.

   A request is numbers (u64, in the machine's order) and strings (u64 length, bytes, a NUL that the length leaves out):
     whether new files of /box follow, which stay until others come; these; uid (0: this process's); MiB and files of
     /tmp (0: it is read-only); then lists, each with its count first: rlimits as number and value in turn; arguments;
     environment; files of /tmp.
   Files are a count, then mode, path and content of each in turn. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILTER "/box/filter"
#define NEW_NAMESPACES (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS)
enum { CONTROL = 100, REQUEST = 101, FIRST = 102, GIVEN = 5, WORDS = 4096, INSTRUCTIONS = 4096 };

struct reply {
  uint32_t started; /* whether the command took this program's place */
  int32_t status;   /* as wait(2) has it */
  uint64_t cpu_us;  /* of the command with all its processes, and of this one since the last reply */
};

static void give_up(const char *why) {
  dprintf(2, "nested box: %s: %s\n", why, strerror(errno));
  _exit(70);
}

/* ------------------------------------------------------------------------------------------------------ request */

static char *at, *end;

static uint64_t number(void) {
  uint64_t value;
  if (end - at < (ptrdiff_t)sizeof value)
    give_up("the request is cut short");
  memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

static char *string(size_t *length) {
  uint64_t size = number();
  char *text = at;
  if (end - at <= (ptrdiff_t)size || size > INT32_MAX || text[size])
    give_up("a string of the request is cut short");
  at += size + 1;
  if (length)
    *length = size;
  return text;
}

static void words(char **into) {
  uint64_t count = number();
  if (count >= WORDS)
    give_up("too many words");
  for (uint64_t n = 0; n < count; n++)
    into[n] = string(NULL);
  into[count] = NULL;
}

/* -------------------------------------------------------------------------------------------------------- child */

static struct sock_filter filter[INSTRUCTIONS];
static struct sock_fprog filter_program = {.filter = filter};

static void mount_memory(const char *place, const char *options) {
  if (mount("gradus", place, "tmpfs", MS_NOSUID | MS_NODEV, options))
    give_up(place);
}

/* The kernel refuses to drop flags that a mount came with, so they stay. */
static void make_read_only(const char *place) {
  struct statvfs about;
  if (statvfs(place, &about))
    give_up(place);
  unsigned long kept = about.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC);
  if (mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL))
    give_up(place);
}

static void write_file(const char *path, mode_t mode, const char *content, size_t length) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
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

static void write_files(uint64_t count) {
  while (count--) {
    mode_t mode = (mode_t)number();
    char *path = string(NULL);
    size_t length;
    char *content = string(&length);
    write_file(path, mode, content, length);
  }
}

static void drop_rights(uid_t uid) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {0};
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
      give_up("a capability stays");
  if (uid && (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
    give_up("no user of its own");
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &header, none))
    give_up("capabilities stay");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter_program))
    give_up("no filter of system calls");
}

/* Never returns. Sets *started when the command is all that can still fail. */
static void run(volatile uint32_t *started) {
  static char *arguments[WORDS], *environment[WORDS];
  uid_t uid = (uid_t)number();
  uint64_t scratch_mb = number(), scratch_files = number();
  struct rlimit limits[64];
  uint64_t resources[64], n_limits = number();
  if (n_limits > 64)
    give_up("too many limits");
  for (uint64_t n = 0; n < n_limits; n++) {
    resources[n] = number();
    limits[n].rlim_cur = limits[n].rlim_max = number();
  }
  words(arguments);
  words(environment);
  char options[128];
  snprintf(options, sizeof options, "mode=1777,size=%llum,nr_inodes=%llu", (unsigned long long)scratch_mb,
           (unsigned long long)scratch_files);
  uint64_t n_files = number();
  int has_tmp = scratch_mb || n_files; /* otherwise it is a folder of the read-only root */
  if (has_tmp)
    mount_memory("/tmp", scratch_mb ? options : "mode=0755");
  umask(0);
  write_files(n_files);
  make_read_only("/box");
  if (has_tmp && !scratch_mb)
    make_read_only("/tmp");
  umask(022);
  if (setsid() < 0 || chdir("/tmp"))
    give_up("/tmp");
  for (uint64_t n = 0; n < n_limits; n++)
    if (setrlimit((__rlimit_resource_t)resources[n], &limits[n]))
      give_up("a limit cannot be set");
  drop_rights(uid);
  for (int n = 0; n < 4; n++)
    if (n != 2 && dup2(FIRST + n, n) < 0)
      give_up("no descriptors");
  int errors = dup2(FIRST + 2, 2);
  if (errors < 0 || close_range(4, ~0U, 0))
    give_up("no descriptors");
  environ = environment;
  *started = 1;
  execvp(arguments[0], arguments);
  dprintf(2, "%s: %s\n", arguments[0], strerror(errno));
  _exit(errno == ENOENT ? 127 : 126);
}

/* ------------------------------------------------------------------------------------------------------- server */

static void read_filter(void) {
  int fd = open(FILTER, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? -1 : read(fd, filter, sizeof filter);
  if (size <= 0 || (size_t)size == sizeof filter || size % (ssize_t)sizeof *filter)
    give_up(FILTER);
  filter_program.len = (unsigned short)(size / (ssize_t)sizeof *filter);
  close(fd);
}

static uint64_t count_us(const struct rusage *usage) {
  return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
         (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* Returns the kind of a packet, with the descriptors of a request at REQUEST and behind it. */
static char receive(void) {
  char kind, space[CMSG_SPACE(GIVEN * sizeof(int))] __attribute__((aligned(8)));
  struct iovec part = {&kind, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  ssize_t got = recvmsg(CONTROL, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0)
    _exit(0);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (kind != 'r')
    return kind;
  if (!header || header->cmsg_len != CMSG_LEN(GIVEN * sizeof(int)))
    give_up("a request without descriptors");
  int given[GIVEN];
  memcpy(given, CMSG_DATA(header), sizeof given);
  for (int n = 0; n < GIVEN; n++) {
    if (dup3(given[n], REQUEST + n, O_CLOEXEC) < 0)
      give_up("no descriptors");
    close(given[n]);
  }
  return kind;
}

/* Commands see /box read-only. */
static void renew_files(void) {
  static int is_mounted;
  if (is_mounted && umount2("/box", MNT_DETACH))
    give_up("/box");
  is_mounted = 1;
  umask(0);
  mount_memory("/box", "mode=0755");
  write_files(number());
}

static void serve(volatile uint32_t *started) {
  static uint64_t own_us;
  struct stat about;
  if (fstat(REQUEST, &about))
    give_up("no request");
  char *request = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, REQUEST, 0);
  if (request == MAP_FAILED)
    give_up("no request");
  at = request;
  end = request + about.st_size;
  if (number())
    renew_files();
  *started = 0;
  int child_fd = -1;
  pid_t child = (pid_t)syscall(SYS_clone, NEW_NAMESPACES | CLONE_PIDFD | SIGCHLD, 0, &child_fd, 0, 0);
  if (child < 0)
    give_up("no namespaces");
  if (child == 0)
    run(started);
  munmap(request, (size_t)about.st_size);
  close_range(REQUEST, REQUEST + GIVEN - 1, 0);
  struct pollfd watched[] = {{child_fd, POLLIN, 0}, {CONTROL, POLLIN, 0}};
  while (!watched[0].revents) {
    if (poll(watched, 2, -1) < 0 && errno != EINTR)
      give_up("cannot wait");
    if (watched[1].revents && receive() == 'k')
      syscall(SYS_pidfd_send_signal, child_fd, SIGKILL, NULL, 0);
  }
  close(child_fd);
  struct rusage used, own;
  struct reply reply = {0};
  if (wait4(child, &reply.status, __WALL, &used) != child || getrusage(RUSAGE_SELF, &own))
    give_up("no end");
  reply.started = *started;
  reply.cpu_us = count_us(&used) + count_us(&own) - own_us;
  own_us = count_us(&own);
  if (send(CONTROL, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply)
    give_up("no reply");
}

int main(void) {
  if (getpid() != 1)
    give_up("this is no box");
  volatile uint32_t *started =
      mmap(NULL, sizeof *started, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (started == MAP_FAILED || dup3(0, CONTROL, O_CLOEXEC) < 0)
    give_up("no socket");
  close_range(3, CONTROL - 1, 0);
  close_range(CONTROL + 1, ~0U, 0);
  read_filter();
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
    give_up("mounts are shared");
  make_read_only("/dev/null"); /* it can still be written to, but its times cannot be set */
  make_read_only("/dev/urandom");
  if (send(CONTROL, "ready", 5, MSG_NOSIGNAL) != 5)
    give_up("no reply");
  for (;;)
    if (receive() == 'r')
      serve(started);
}
