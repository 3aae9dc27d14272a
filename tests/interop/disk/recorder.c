// Recorder of everything that a process does to one directory, as dm-log-writes does it for a device.
//
// Loaded with LD_PRELOAD. A seccomp filter turns each system call that changes or synchronises files into SIGSYS, also
// those that are made without the C library (by rustix), and the handler carries it out: it logs what is about to be
// done, with the bytes, does it, and logs the result. Calls that the filter could not let through again (they use all
// six arguments) fail as on a kernel that lacks them, and programs fall back to plain ones.
//
// FOGMUX_DISK_DIRECTORY: absolute path without symbolic links. FOGMUX_DISK_LOG: the log, which disk/log.py reads.
// FOGMUX_DISK_CONTROL: a file of `struct control` (faults.h), which the test may change at any time.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "faults.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define ARGUMENT(context, n) \
    ((long)(context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[n]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define ARGUMENT(context, n) ((long)(context)->uc_mcontext.regs[n])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "no registers are known for this architecture"
#endif

// In the sixth argument, which none of the calls uses that are carried out: let through.
#define OURS 0x5ec7064d15c0ffeeL
// The log's descriptor, so high that the process does not come across it.
#define LOG_FD 900

enum kind { WRITE = 'W', SIZE = 'T', CREATE = 'C', MKDIR = 'M', RENAME = 'R', REMOVE = 'U', SYNC = 'S', FULL = 'N',
            UNKNOWN = 'X', DONE = 'r' };

// Before the two names, which have `first` and `second` bytes, or the `second` bytes of a write.
struct record {
    uint32_t kind;
    uint32_t first;
    uint64_t number;
    uint64_t inode;
    int64_t at;
    uint64_t second;
};

static char directory[4096];
static size_t directory_length;
static atomic_flag lock = ATOMIC_FLAG_INIT;
// Below here, what the lock protects.
static uint64_t last_number;
static uint64_t full_inode;
static char names[2][8192];

static long call(long number, long a, long b, long c, long d, long e) {
    long result = syscall(number, a, b, c, d, e, OURS);
    return result == -1 ? -errno : result;
}

static void take_lock(void) {
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) call(SYS_sched_yield, 0, 0, 0, 0, 0);
}

static void give_lock(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

static void die(const char *why) {
    call(SYS_write, 2, (long)why, (long)strlen(why), 0, 0);
    abort();
}

static void log_parts(struct iovec *parts, int count) {
    size_t length = 0;
    for (int at = 0; at < count; at++) length += parts[at].iov_len;
    long written = call(SYS_writev, LOG_FD, (long)parts, count, 0, 0);
    if (written != (long)length) die("disk recorder: cannot write its log\n");
}

// What is about to be done; its number.
static uint64_t begin(enum kind kind, uint64_t inode, int64_t at, const char *first, const char *second) {
    size_t lengths[] = {first ? strlen(first) : 0, second ? strlen(second) : 0};
    struct record record = {kind, (uint32_t)lengths[0], ++last_number, inode, at, lengths[1]};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)first, lengths[0]}, {(void *)second, lengths[1]}};
    log_parts(parts, 3);
    return record.number;
}

// The outcome, and the inode if one was made.
static long done(uint64_t number, long result, uint64_t inode) {
    struct record record = {DONE, 0, number, inode, result, 0};
    struct iovec part = {&record, sizeof record};
    log_parts(&part, 1);
    return result;
}

static int is_below(const char *path) {
    return strncmp(path, directory, directory_length) == 0 &&
           (path[directory_length] == '/' || path[directory_length] == 0);
}

// The path behind a descriptor; whether it is of the directory.
static int locate(int fd, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = call(SYS_readlinkat, AT_FDCWD, (long)link, (long)path, 4095, 0);
    path[length < 0 ? 0 : length] = 0;
    return length > 0 && is_below(path);
}

// As `locate`, of a name relative to a descriptor.
static int locate_name(int fd, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, 8192, "%s", name);
    } else {
        if (fd == AT_FDCWD) {
            if (call(SYS_getcwd, (long)path, 4095, 0, 0, 0) < 0) path[0] = 0;
        } else {
            locate(fd, path);
        }
        size_t length = strlen(path);
        snprintf(path + length, 8192 - length, "/%s", name);
    }
    return is_below(path);
}

static uint64_t inode_of(const char *path) {
    struct stat stat;
    return call(SYS_newfstatat, AT_FDCWD, (long)path, (long)&stat, AT_SYMLINK_NOFOLLOW, 0) < 0 ? 0 : stat.st_ino;
}

// Whether a descriptor is a file or directory below the directory.
static int is_ours(int fd, struct stat *stat) {
    char path[4096];
    if (call(SYS_fstat, fd, (long)stat, 0, 0, 0) < 0) return 0;
    return (S_ISREG(stat->st_mode) || S_ISDIR(stat->st_mode)) && locate(fd, path);
}

static int is_full(uint64_t inode) {
    int is_again = full_inode && full_inode == inode;
    if (!is_again && !fails(control->is_full)) return 0;
    full_inode = 0;
    done(begin(FULL, inode, 0, NULL, NULL), -ENOSPC, 0);
    return 1;
}

// `at` is -1 for the file's own position.
static long written(long number, int fd, const struct iovec *parts, int count, int64_t at, long *arguments) {
    struct stat stat;
    if (!is_ours(fd, &stat)) return call(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
    if (control->is_read_only) return -EROFS;
    take_lock();
    int64_t offset = at;
    if (at < 0) {
        int is_appended = call(SYS_fcntl, fd, F_GETFL, 0, 0, 0) & O_APPEND;
        call(SYS_fstat, fd, (long)&stat, 0, 0, 0);
        offset = is_appended ? stat.st_size : call(SYS_lseek, fd, 0, SEEK_CUR, 0, 0);
    }
    struct iovec all[65];
    size_t length = 0;
    if (count > 64) count = 64;
    for (int part = 0; part < count; part++) length += (all[part + 1] = parts[part]).iov_len;
    if (is_full(stat.st_ino)) {
        // Some of it may fit; the next write says that it was not all.
        size_t fits = random_below(length / 512 + 1) * 512;
        if (fits == 0 || fits >= length || count != 1) return give_lock(), -ENOSPC;
        full_inode = stat.st_ino;
        all[1].iov_len = length = fits;
    }
    struct record record = {WRITE, 0, ++last_number, stat.st_ino, offset, length};
    all[0] = (struct iovec){&record, sizeof record};
    log_parts(all, count + 1);
    long result = at < 0 ? call(SYS_writev, fd, (long)(all + 1), count, 0, 0)
                         : call(SYS_pwritev, fd, (long)(all + 1), count, offset, 0);
    done(record.number, result, 0);
    return give_lock(), result;
}

static long sized(long number, int fd, int64_t size, long *arguments) {
    struct stat stat;
    int is_known = number == SYS_ftruncate || (arguments[1] & FALLOC_FL_KEEP_SIZE) == arguments[1];
    if (!is_ours(fd, &stat)) return call(number, arguments[0], arguments[1], arguments[2], arguments[3], 0);
    if (control->is_read_only) return -EROFS;
    take_lock();
    call(SYS_fstat, fd, (long)&stat, 0, 0, 0);
    if (number == SYS_fallocate && is_full(stat.st_ino)) return give_lock(), -ENOSPC;
    if (number == SYS_fallocate && (arguments[1] || size < stat.st_size)) size = stat.st_size;
    uint64_t begun = begin(is_known ? SIZE : UNKNOWN, stat.st_ino, size, "fallocate", NULL);
    long result = done(begun, call(number, arguments[0], arguments[1], arguments[2], arguments[3], 0), 0);
    give_lock();
    return result;
}

static long synchronised(long number, int fd) {
    struct stat stat;
    if (!is_ours(fd, &stat)) return call(number, fd, 0, 0, 0, 0);
    take_lock();
    uint64_t begun = begin(SYNC, stat.st_ino, 0, NULL, NULL);
    struct timespec takes = {0, (long)random_below(control->sync_takes + 1) * 1000};
    int is_failing = fails(control->sync_fails);
    give_lock();
    call(SYS_nanosleep, (long)&takes, 0, 0, 0, 0);
    while (control->is_stalled) call(SYS_nanosleep, (long)&(struct timespec){0, 1000000}, 0, 0, 0, 0);
    // The machine's disk is not asked: the test takes away what was not synchronised by this record.
    take_lock();
    if (number == SYS_fdatasync && !is_failing) has_failed = 0;
    long result = done(begun, control->is_read_only ? -EROFS : is_failing ? -EIO : 0, 0);
    return give_lock(), result;
}

static long opened(long number, int at, const char *name, long flags, long *arguments) {
    take_lock();
    long result, inode = 0;
    if (!locate_name(at, name, names[0])) {
        give_lock();
        return call(number, arguments[0], arguments[1], arguments[2], arguments[3], 0);
    }
    if (flags & O_CREAT) inode = (long)inode_of(names[0]);
    if (control->is_read_only && (!inode || flags & (O_TRUNC | O_ACCMODE))) return give_lock(), -EROFS;
    if (flags & O_CREAT && !inode && is_full(0)) return give_lock(), -ENOSPC;
    enum kind kind = (flags & O_TMPFILE) == O_TMPFILE ? UNKNOWN : inode ? SIZE : CREATE;
    if (kind == SIZE && !(flags & O_TRUNC)) {
        result = call(number, arguments[0], arguments[1], arguments[2], arguments[3], 0);
    } else {
        uint64_t begun = begin(kind, (uint64_t)inode, 0, names[0], NULL);
        result = call(number, arguments[0], arguments[1], arguments[2], arguments[3], 0);
        done(begun, result, result < 0 ? 0 : inode_of(names[0]));
    }
    give_lock();
    return result;
}

// One or two names.
static long named(enum kind kind, long number, int at, const char *name, int other_at, const char *other,
                  long *arguments) {
    take_lock();
    int is_ours = locate_name(at, name, names[0]) | (other && locate_name(other_at, other, names[1]));
    if (is_ours && control->is_read_only) return give_lock(), -EROFS;
    uint64_t begun = is_ours ? begin(kind, 0, 0, names[0], other ? names[1] : NULL) : 0;
    long result = call(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
    if (is_ours) done(begun, result, kind == MKDIR && result == 0 ? inode_of(names[0]) : 0);
    return give_lock(), result;
}

static long carry_out(long number, long *a) {
    struct iovec part = {(void *)a[1], (size_t)a[2]};
    switch (number) {
    case SYS_write: return written(number, a[0], &part, 1, -1, a);
    case SYS_writev: return written(number, a[0], (struct iovec *)a[1], a[2], -1, a);
    case SYS_pwrite64: return written(number, a[0], &part, 1, a[3], a);
    case SYS_pwritev: return written(number, a[0], (struct iovec *)a[1], a[2], a[3], a);
    case SYS_ftruncate: return sized(number, a[0], a[1], a);
    case SYS_fallocate: return sized(number, a[0], a[2] + a[3], a);
    case SYS_truncate: return named(UNKNOWN, number, AT_FDCWD, (char *)a[0], 0, NULL, a);
    case SYS_fsync: case SYS_fdatasync: return synchronised(number, a[0]);
    case SYS_openat: return opened(number, a[0], (char *)a[1], a[2], a);
    case SYS_openat2: return -ENOSYS;
    case SYS_renameat: case SYS_renameat2:
        return named(number == SYS_renameat2 && a[4] ? UNKNOWN : RENAME, number, a[0], (char *)a[1], a[2],
                     (char *)a[3], a);
    case SYS_unlinkat: return named(REMOVE, number, a[0], (char *)a[1], 0, NULL, a);
    case SYS_mkdirat: return named(MKDIR, number, a[0], (char *)a[1], 0, NULL, a);
    case SYS_linkat: return named(UNKNOWN, number, a[2], (char *)a[3], 0, NULL, a);
    case SYS_symlinkat: return named(UNKNOWN, number, a[1], (char *)a[2], 0, NULL, a);
#ifdef __x86_64__
    case SYS_open: return opened(number, AT_FDCWD, (char *)a[0], a[1], a);
    case SYS_creat: return opened(number, AT_FDCWD, (char *)a[0], O_CREAT | O_TRUNC, a);
    case SYS_rename: return named(RENAME, number, AT_FDCWD, (char *)a[0], AT_FDCWD, (char *)a[1], a);
    case SYS_unlink: case SYS_rmdir: return named(REMOVE, number, AT_FDCWD, (char *)a[0], 0, NULL, a);
    case SYS_mkdir: return named(MKDIR, number, AT_FDCWD, (char *)a[0], 0, NULL, a);
    case SYS_link: case SYS_symlink: return named(UNKNOWN, number, AT_FDCWD, (char *)a[1], 0, NULL, a);
#endif
    case SYS_mmap: return -ENODEV;
    default: return -ENOSYS;
    }
}

static void trapped(int signal, siginfo_t *info, void *given) {
    (void)signal;
    ucontext_t *context = given;
    int before = errno;
    long arguments[6];
    for (int n = 0; n < 6; n++) arguments[n] = ARGUMENT(context, n);
    RESULT(context) = carry_out(info->si_syscall, arguments);
    errno = before;
}

static const int CALLS[] = {
    SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_ftruncate, SYS_fallocate, SYS_truncate, SYS_fsync,
    SYS_fdatasync, SYS_openat2, SYS_renameat, SYS_renameat2, SYS_unlinkat, SYS_mkdirat, SYS_linkat, SYS_symlinkat,
#ifdef __x86_64__
    SYS_creat, SYS_rename, SYS_unlink, SYS_rmdir, SYS_mkdir, SYS_link, SYS_symlink,
#endif
    // Never carried out.
    SYS_pwritev2, SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_io_uring_setup,
};
enum { COUNT = sizeof CALLS / sizeof CALLS[0], FILTER_MAX = 3 * COUNT + 40 };

#define LOAD(field) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(test, value, yes, no) (struct sock_filter) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), yes, no)
#define RETURN(action) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, action)

static void install(void) {
    struct sock_filter filter[FILTER_MAX];
    int n = 0;
    filter[n++] = LOAD(arch);
    filter[n++] = IF(BPF_JEQ, ARCHITECTURE, 1, 0);
    filter[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    // A call of ours.
    filter[n++] = LOAD(args[5]);
    filter[n++] = IF(BPF_JEQ, OURS & 0xffffffff, 0, 3);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5]) + 4);
    filter[n++] = IF(BPF_JEQ, OURS >> 32, 0, 1);
    filter[n++] = RETURN(SECCOMP_RET_ALLOW);
    filter[n++] = LOAD(nr);
    for (int at = 0; at < COUNT; at++) {
        filter[n++] = IF(BPF_JEQ, CALLS[at], 0, 1);
        filter[n++] = RETURN(SECCOMP_RET_TRAP);
    }
    // To open a file changes something only if it may be made or cut.
    filter[n++] = IF(BPF_JEQ, SYS_openat, 0, 3);
    filter[n++] = LOAD(args[2]);
    filter[n++] = IF(BPF_JSET, O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY), 0, 1);
    filter[n++] = RETURN(SECCOMP_RET_TRAP);
#ifdef __x86_64__
    filter[n++] = LOAD(nr);
    filter[n++] = IF(BPF_JEQ, SYS_open, 0, 3);
    filter[n++] = LOAD(args[1]);
    filter[n++] = IF(BPF_JSET, O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY), 0, 1);
    filter[n++] = RETURN(SECCOMP_RET_TRAP);
#endif
    // A file that is written to through memory.
    filter[n++] = LOAD(nr);
    filter[n++] = IF(BPF_JEQ, SYS_mmap, 0, 6);
    filter[n++] = LOAD(args[3]);
    filter[n++] = IF(BPF_JSET, MAP_ANONYMOUS, 4, 0);
    filter[n++] = IF(BPF_JSET, MAP_SHARED, 0, 3);
    filter[n++] = LOAD(args[2]);
    filter[n++] = IF(BPF_JSET, PROT_WRITE, 0, 1);
    filter[n++] = RETURN(SECCOMP_RET_TRAP);
    filter[n++] = RETURN(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        die("disk recorder: no seccomp filter can be installed\n");
}

static const char *required(const char *name) {
    const char *value = getenv(name);
    if (!value) die("disk recorder: FOGMUX_DISK_DIRECTORY, FOGMUX_DISK_LOG and FOGMUX_DISK_CONTROL say where\n");
    return value;
}

__attribute__((constructor)) static void start(void) {
    snprintf(directory, sizeof directory, "%s", required("FOGMUX_DISK_DIRECTORY"));
    directory_length = strlen(directory);
    int log = open(required("FOGMUX_DISK_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    int controls = open(required("FOGMUX_DISK_CONTROL"), O_RDONLY | O_CLOEXEC);
    control = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, controls, 0);
    if (log < 0 || control == MAP_FAILED || dup3(log, LOG_FD, O_CLOEXEC) < 0) die("disk recorder: no log\n");
    close(log), close(controls);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    state ^= (uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid();
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL)) die("disk recorder: no signal handler\n");
    install();
}
